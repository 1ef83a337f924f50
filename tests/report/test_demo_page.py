"""A real, tiny demo run: what the command leaves behind, and its page in a real browser."""

import csv
import io
import json
import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from report_command import DEMO, pclc

Demo = tuple[Path, dict[str, Any]]
RESULTS = (
    "config.json",
    "model.safetensors",
    "evaluation.json",
    "audit.json",
    "witnesses.safetensors",
    "inspection.json",
)


def test_everything_is_there(demo: Demo) -> None:
    folder, printed = demo
    assert printed["report"] == "runs/demo/report.html"
    assert [finding["name"] for finding in printed["findings"]] == ["ce", "gce", "pc-lc"]
    assert len(printed["sentences"]) == 3
    for finding in printed["findings"]:
        assert all((folder / finding["run"] / name).is_file() for name in RESULTS)
        evaluation = json.loads((folder / finding["run"] / "evaluation.json").read_text())
        assert evaluation["n"] == printed["examples"] == 24
        worst = next(entry for entry in evaluation["worst_case"] if entry["eps"] == printed["eps"])
        assert finding["worst"]["correct"] == worst["accuracy"]["correct"]
        assert finding["verdict"] == json.loads((folder / finding["run"] / "audit.json").read_text())["verdict"]


def test_an_interrupted_demo_goes_on(demo: Demo, tmp_path: Path) -> None:
    folder, printed = demo
    shutil.copytree(folder / "runs", tmp_path / "runs")
    finished, interrupted = tmp_path / "runs" / "demo" / "ce", tmp_path / "runs" / "demo" / "gce"
    before = {name: (finished / name).stat().st_mtime_ns for name in RESULTS if name != "evaluation.json"}
    lost = (interrupted / "inspection.json").read_bytes()
    (interrupted / "inspection.json").unlink()
    (tmp_path / "runs" / "demo" / "report.html").unlink()
    own = ("audit", "runs/demo/pc-lc", "--eps", "0.1", "--quick", "--examples", "24", "--device", "cpu")
    pclc(*own, "--claim", "0.01", cwd=tmp_path, code=3)  # its verdict is about another claim than the demo's
    again = json.loads(pclc(*DEMO, cwd=tmp_path).stdout)
    assert again == printed
    assert {name: (finished / name).stat().st_mtime_ns for name in before} == before
    assert (interrupted / "inspection.json").read_bytes() == lost
    assert (tmp_path / again["report"]).is_file()


def test_a_close_look_repeats_with_the_command_of_the_page(demo: Demo, tmp_path: Path) -> None:
    folder, _ = demo
    shutil.copytree(folder / "runs" / "demo" / "pc-lc", tmp_path / "run")
    before = (tmp_path / "run" / "inspection.json").read_bytes()
    pclc("report", "run", "--inspect", json.loads(before)["attack"], "--device", "cpu", cwd=tmp_path)
    assert (tmp_path / "run" / "inspection.json").read_bytes() == before


class Visit:
    """A page that keeps what went wrong."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.context = browser.new_context(permissions=["clipboard-read", "clipboard-write"], **settings)
        self.page = self.context.new_page()
        self.problems: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.problems.append(message.text))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())


@pytest.fixture
def visit(browser: Any, demo: Demo) -> Iterator[Visit]:
    folder, printed = demo
    found = Visit(browser, folder / printed["report"], viewport={"width": 1280, "height": 900}, color_scheme="light")
    yield found
    assert found.problems == []
    found.context.close()


def cells(table: Any) -> list[list[str]]:
    rows = table.evaluate("table => [...table.rows].map(row => [...row.cells].map(cell => cell.textContent.trim()))")
    return [list(row) for row in rows]


def shown(value: float) -> str:
    return f"{100 * value:.1f}"


def test_the_page_says_what_was_cut_short(visit: Visit) -> None:
    lead = visit.page.get_by_role("banner").inner_text()
    assert "A short demo: lenet8 trained for 2 + 2 epochs" in lead
    assert "The first 24 of 360 test images" in lead


def test_nothing_is_loaded_and_nothing_is_wrong(visit: Visit) -> None:
    assert [url.split(":")[0] for url in visit.requests if not url.startswith("data:")] == ["file"]
    assert visit.page.title() == "Robustness report"


def test_the_figures_are_those_of_the_result_files(visit: Visit, demo: Demo) -> None:
    folder, printed = demo
    table = cells(visit.page.get_by_role("table", name="Every figure").first)
    read = {(row[0], row[1], row[3]): row[4:7] for row in table[1:]}
    expected = {}
    for finding in printed["findings"]:
        run = folder / finding["run"]
        document = json.loads((run / "evaluation.json").read_text())
        figures = [("clean", 0.0, document["clean"]["accuracy"])]
        figures += [(entry["attack"], entry["eps"], entry["accuracy"]) for entry in document["attacks"]]
        figures += [("worst case", entry["eps"], entry["accuracy"]) for entry in document["worst_case"] if entry["eps"]]
        for attack, eps, accuracy in figures:
            bounds = f"{shown(accuracy['low'])} to {shown(accuracy['high'])}"
            expected[run.name, attack, f"{eps:.4g}"] = [shown(accuracy["value"]), bounds, str(accuracy["n"])]
    assert read == expected
    assert len(read) == 3 * (1 + 24 + 4)


def test_the_summary_has_the_verdicts(visit: Visit, demo: Demo) -> None:
    folder, printed = demo
    audits = {f["name"]: json.loads((folder / f["run"] / "audit.json").read_text()) for f in printed["findings"]}
    rows = cells(visit.page.locator("#summary table"))
    assert {row[0]: row[7] for row in rows[1:]} == {name: audit["verdict"] for name, audit in audits.items()}
    worst = {finding["name"]: finding["worst"] for finding in printed["findings"]}
    assert {row[0]: row[3] for row in rows[1:]} == {
        name: shown(accuracy["correct"] / accuracy["n"]) for name, accuracy in worst.items()
    }
    for name, audit in audits.items():
        item = visit.page.locator("#summary .verdicts li").filter(has=visit.page.get_by_text(name, exact=True))
        assert f"{shown(audit['robust_accuracy']['value'])} %" in item.inner_text()
        article = visit.page.get_by_role("article", name=f"Audit of {name}")
        assert f"{len(audit['checks'])} checks" in article.inner_text()


def test_images_are_those_that_were_inspected(visit: Visit, demo: Demo) -> None:
    folder, printed = demo
    for finding in printed["findings"]:
        inspection = json.loads((folder / finding["run"] / "inspection.json").read_text())
        article = visit.page.get_by_role("article", name=f"Images of {finding['name']}", exact=True)
        assert article.locator("img").count() == 3 * len(inspection["examples"])
        assert f"{inspection['turned']} of {inspection['n']} images" in article.inner_text()
        for image in article.locator("img").all():
            assert image.evaluate("image => image.complete && image.naturalWidth") >= 64


def test_a_table_sorts_by_value_and_copies_as_csv(visit: Visit) -> None:
    box = visit.page.locator("#accuracy .tablebox")
    before = cells(box.locator("table"))
    button = box.get_by_role("button", name="accuracy %", exact=True)
    button.press("Enter")
    rising = [float(row[4]) for row in cells(box.locator("table"))[1:]]
    assert rising == sorted(rising)
    assert rising != [float(row[4]) for row in before[1:]]
    button.click()
    assert [float(row[4]) for row in cells(box.locator("table"))[1:]] == sorted(rising, reverse=True)
    assert box.locator("th[aria-sort=descending]").inner_text().startswith("accuracy")
    box.get_by_role("button", name="Copy as CSV").click()
    visit.page.get_by_role("button", name="Copied").wait_for()
    copied = visit.page.evaluate("navigator.clipboard.readText()")
    assert list(csv.reader(io.StringIO(copied))) == cells(box.locator("table"))


def test_the_legend_and_the_views(visit: Visit) -> None:
    group = visit.page.locator("#accuracy [data-group]")
    panels = group.locator("[data-show=run] svg.chart")
    assert panels.count() == 3
    line = panels.first.locator("[data-series='0']")
    label = group.locator("[data-show=run]").get_by_role("checkbox", name="FGSM")
    label.focus()
    visit.page.keyboard.press("Space")
    assert not line.is_visible()
    assert group.locator("[data-show=run] [data-series='0']:not(.off)").count() == 0
    assert panels.first.locator("[data-series='1']").is_visible()
    label.check()
    assert line.is_visible()
    group.get_by_role("radio", name="attack").check()
    assert not panels.first.is_visible()
    by_attack = group.locator("[data-show=attack] figcaption").all_inner_texts()
    assert by_attack[0] == "worst case"
    assert "PGD-40" in by_attack


def test_arrow_keys_read_a_chart(visit: Visit, demo: Demo) -> None:
    folder, printed = demo
    finding = printed["findings"][0]
    document = json.loads((folder / finding["run"] / "evaluation.json").read_text())
    plot = visit.page.locator("#accuracy [data-show=run] .plot").first
    plot.focus()
    for _ in range(2):  # the clean images, then the smallest eps
        visit.page.keyboard.press("ArrowRight")
    lines = plot.locator("output").inner_text().split("\n")
    smallest = min(entry["eps"] for entry in document["attacks"])
    assert lines[0] == f"eps (Linf) {smallest:.4g}"
    fgsm = next(e for e in document["attacks"] if e["eps"] == smallest and e["attack"].startswith("fgsm"))
    assert lines[1].startswith(f"FGSM: {shown(fgsm['accuracy']['value'])} %")
    worst = next(e for e in document["worst_case"] if e["eps"] == smallest)["accuracy"]
    bounds = f"({shown(worst['low'])} to {shown(worst['high'])})"
    assert lines[-1] == f"worst case: {shown(worst['value'])} % {bounds}"
    visit.page.keyboard.press("Escape")
    assert not plot.locator("output").is_visible()


def test_dark_and_light(browser: Any, visit: Visit, demo: Demo) -> None:
    folder, printed = demo
    paper = "getComputedStyle(document.body).backgroundColor"
    light = visit.page.evaluate(paper)
    visit.page.get_by_role("button", name="Switch to dark colours").click()
    dark = visit.page.evaluate(paper)
    assert (light, dark) == ("rgb(255, 255, 255)", "rgb(20, 23, 26)")
    visit.page.reload()
    assert visit.page.evaluate(paper) == dark
    visit.page.get_by_role("button", name="Switch to light colours").click()
    assert visit.page.evaluate(paper) == light
    other = Visit(browser, folder / printed["report"], color_scheme="dark")
    assert other.page.evaluate(paper) == dark
    other.context.close()


def test_a_narrow_screen_and_paper(browser: Any, demo: Demo) -> None:
    folder, printed = demo
    narrow = Visit(browser, folder / printed["report"], viewport={"width": 360, "height": 740})
    for details in narrow.page.locator("details").all():
        details.evaluate("details => { details.open = true; }")
    assert narrow.page.evaluate("document.documentElement.scrollWidth") <= 360
    narrow.page.emulate_media(media="print")
    assert not narrow.page.get_by_role("navigation").is_visible()
    assert narrow.page.get_by_role("button", name="Copy as CSV").count() == 0
    narrow.page.set_viewport_size({"width": 688, "height": 1000})  # A4 between its margins
    assert (
        narrow.page.evaluate(
            "[...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth + 1)"
            ".map(box => box.ariaLabel)"
        )
        == []
    )
    assert narrow.problems == []
    narrow.context.close()


def test_people_who_do_not_see_it_can_use_it(visit: Visit) -> None:
    page = visit.page
    for landmark in ("banner", "navigation", "main", "contentinfo"):
        assert page.get_by_role(landmark).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(h => Number(h.tagName[1]))")
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert page.locator("img:not([alt]), img[alt='']").count() == 0
    assert page.locator("svg:not([aria-hidden]):not([role=img][aria-label])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    assert page.evaluate("[...document.querySelectorAll('input')].every(input => input.labels.length)")
    assert page.evaluate("[...document.querySelectorAll('nav a')].every(a => document.querySelector(a.hash))")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the summary"
    # Every chart has a table: beside it, behind it, or below it in its section.
    assert page.evaluate(
        "[...document.querySelectorAll('svg[role=img]')].every(s => s.closest('section').querySelector('table'))"
    )
