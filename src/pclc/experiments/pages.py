"""Pages of the documentation from a result store alone: nothing is run for them, and no figure on them is typed."""

from collections.abc import Sequence
from pathlib import Path

from pclc.experiments.experiment import Experiment
from pclc.experiments.pages_adversarial import PAGE, adversarial_page
from pclc.experiments.pages_plan import plan_section
from pclc.experiments.pages_reproduction import reproduction_section
from pclc.experiments.pages_summary import ambiguities_section, headline_section, summary_section
from pclc.experiments.pages_text import replace_between
from pclc.experiments.store import Store
from pclc.experiments.table import make_table
from pclc.experiments.values import Selection, choose
from pclc.files import write_atomically


def write_reproduction(store: Store, experiments: Sequence[Experiment], selection: Selection, docs: Path) -> list[Path]:
    """Write what stands between the marks of `reproduction.md`, and of the README beside `docs`; the rest stays.

    The experiments are all there are, in the order of the page.
    """
    page = docs / "reproduction.md"
    if not page.exists():
        raise FileNotFoundError(f"Expected `docs` to be a folder with reproduction.md, but {page} is not there.")
    # Studies with settings have a page of their own.
    tables = [make_table(store, each, selection, {}) for each in experiments if each.tuning is None]
    text = page.read_text(encoding="utf-8")
    for name, content in (
        ("summary", summary_section(tables)),
        ("ambiguities", ambiguities_section(tables)),
        ("results", reproduction_section(store, tables, docs)),
        ("plan", plan_section(store, experiments, selection)),
    ):
        text = replace_between(text, name, content)
    write_atomically(page, text.encode())
    readme = docs.parent / "README.md"
    text = readme.read_text(encoding="utf-8") if readme.exists() else ""
    if "<!-- headline: begin -->" not in text:
        return [page]
    studies = [
        make_table(store, each, selection, choose(store, selection.tuning_cells(each)))
        for each in experiments
        if each.tuning is not None
    ]
    blocks = [block for table in studies for block in table.blocks if block.has_run]
    write_atomically(readme, replace_between(text, "headline", headline_section(tables, blocks)).encode())
    return [page, readme]


def write_adversarial(store: Store, experiment: Experiment, selection: Selection, docs: Path) -> list[Path]:
    """Write `adversarial-training.md`, and name it in the contents of `results.md`; nothing without a finished cell."""
    content = adversarial_page(store, experiment, selection, docs)
    if content is None:
        return []
    page, contents = docs / PAGE, docs / "results.md"
    write_atomically(page, content.encode())
    text, name = contents.read_text(encoding="utf-8"), PAGE.removesuffix(".md")
    if f"\n{name}\n" not in text:
        write_atomically(contents, text.replace("\nreproduction\n", f"\nreproduction\n{name}\n").encode())
    return [page]
