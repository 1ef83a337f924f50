"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const say = (text) => { document.getElementById("status").textContent = text; };
  root.classList.add("js");

  // Theme: what the system says, until somebody chooses.
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);
  const showTheme = () => {
    theme.textContent = isDark() ? "Light" : "Dark";
    theme.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
    theme.setAttribute("aria-pressed", String(isDark()));
  };
  try { root.dataset.theme = localStorage.getItem("pclc-theme") || ""; } catch { /* a page from disk may have no storage */ }
  if (!root.dataset.theme) delete root.dataset.theme;
  theme.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try { localStorage.setItem("pclc-theme", root.dataset.theme); } catch { /* then it is for this visit */ }
    showTheme();
  });
  system.addEventListener("change", showTheme);
  showTheme();

  // Tables: sorted by what a cell stands for, copied as they stand.
  const keyOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b, "en", { numeric: true });
  };
  all("button.sort").forEach((button) => button.addEventListener("click", () => {
    const head = button.closest("th"), body = button.closest("table").tBodies[0];
    const down = head.getAttribute("aria-sort") === "ascending";
    all("th", head.parentElement).forEach((other) => other.removeAttribute("aria-sort"));
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = [...body.rows].sort((a, b) => compare(keyOf(a, head.cellIndex), keyOf(b, head.cellIndex)));
    body.append(...(down ? rows.reverse() : rows));
    say(`Sorted by ${button.textContent}, ${down ? "descending" : "ascending"}.`);
  }));
  const quoted = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const csv = (table) => [...table.rows]
    .map((row) => [...row.cells].map((cell) => quoted(cell.textContent.trim())).join(",")).join("\n") + "\n";
  const copied = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };
  all("button.copy").forEach((button) => button.addEventListener("click", async () => {
    const label = button.dataset.label ??= button.textContent;
    const box = button.parentElement;
    const text = button.dataset.copy === "table" ? csv(box.querySelector("table")) : box.querySelector("pre").textContent;
    button.textContent = (await copied(text)) ? "Copied" : "Could not copy";
    button.focus();
    say(button.textContent);
    setTimeout(() => { button.textContent = label; }, 2000);
  }));

  // Legends show and hide series; views change what a panel is about.
  const scopeOf = (element) => element.closest("[data-show]") ?? element.closest("[data-group]");
  all("input[data-toggle]").forEach((input) => input.addEventListener("change", () => {
    all(`[data-series="${input.dataset.toggle}"]`, scopeOf(input)).forEach((series) => series.classList.toggle("off", !input.checked));
  }));
  all("input[data-view]").forEach((input) => input.addEventListener("change", () => {
    all("[data-show]", input.closest("[data-group]")).forEach((view) => { view.hidden = view.dataset.show !== input.value; });
  }));

  // A readout of all series at one place, by pointer or by arrow keys.
  all(".plot").forEach((plot) => {
    const chart = plot.querySelector("svg"), output = plot.querySelector("output");
    const columns = chart.dataset.columns.split(" ").map(Number), words = chart.dataset.words.split(" | ");
    const cursor = chart.querySelector(".cursor");
    let at = -1;
    const hide = () => { at = -1; output.hidden = true; cursor.setAttribute("visibility", "hidden"); };
    const show = (column) => {
      at = Math.max(0, Math.min(columns.length - 1, column));
      const lines = all(`[data-column="${at}"]`, chart).filter((dot) => !dot.closest(".off")).map((dot) => dot.dataset.text);
      output.textContent = [words[at], ...lines].join("\n");
      output.hidden = false;
      cursor.setAttribute("transform", `translate(${columns[at]} 0)`);
      cursor.setAttribute("visibility", "visible");
    };
    plot.addEventListener("pointermove", (event) => {
      const box = chart.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
      show(columns.reduce((best, place, i) => (Math.abs(place - x) < Math.abs(columns[best] - x) ? i : best), 0));
    });
    plot.addEventListener("pointerleave", hide);
    plot.addEventListener("blur", hide);
    plot.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: at + 1, ArrowLeft: at < 0 ? columns.length - 1 : at - 1, Home: 0, End: columns.length - 1 };
      if (event.key === "Escape") hide();
      if (!(event.key in steps)) return;
      event.preventDefault();
      show(steps[event.key]);
    });
  });

  // Paper has no folds; what would fill pages of it stays folded.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = all("details:not([open]):not(.bulk)");
    opened.forEach((details) => { details.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((details) => { details.open = false; }));
})();
