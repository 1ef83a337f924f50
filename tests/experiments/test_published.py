"""The published figures are the paper's: every cell, and no cell more."""

import os
import re
from pathlib import Path

import pytest
from paper_tables import PaperCell, read_tables

from pclc.data import dataset_names
from pclc.experiments.published import TABLES, PublishedFigure, load_published, parse_published
from pclc.models import model_names

DATASETS = {
    "MNIST": "mnist",
    "KMNIST": "kmnist",
    "FMNIST": "fashion-mnist",
    "CIFAR-10": "cifar10",
    "CIFAR-100": "cifar100",
    "SVHN": "svhn",
    "Tiny ImageNet": "tiny-imagenet",
}
# "CGE" is a slip in the heading of Table 5.
COLUMNS = {"CE": "ce", "Ours": "pc-lc", "GCE": "gce", "GCE*": "gce", "CGE": "gce"}


@pytest.fixture(scope="module")
def source() -> str:
    path = os.environ.get("PCLC_PAPER_TEX")
    if not path:
        pytest.skip("needs the paper's LaTeX source: set PCLC_PAPER_TEX to its file")
    return Path(path).read_text(encoding="utf-8")


def ours(cell: PaperCell) -> tuple[str, str, str, str]:
    loss, plus, training = cell.column.partition("+")
    column = COLUMNS[loss] + plus + training.lower()
    attack = cell.attack.lower().replace("&", "")
    row = attack if cell.parameter == "-" else f"{attack} {float(cell.parameter)}"
    return cell.table, DATASETS[cell.dataset], column, row


def test_every_cell_of_every_table(source: str) -> None:
    paper = {ours(cell): value for cell, value in read_tables(source).items()}
    published = {
        (figure.table, figure.dataset, figure.column, figure.row): figure.value
        for table in TABLES
        if table != "gaps"
        for figure in load_published(table)
    }
    assert published == paper
    assert len(paper) == len(read_tables(source)) == 406


def test_what_is_quoted_is_marked(source: str) -> None:
    starred = {ours(cell) for cell in read_tables(source) if cell.column.endswith("*")}
    marked = {
        (figure.table, figure.dataset, figure.column, figure.row)
        for table in TABLES
        for figure in load_published(table)
        if figure.has("quoted")
    }
    assert marked == starred != set()


def test_the_gaps_of_the_introduction(source: str) -> None:
    introduction = source[source.index(r"\section{Introduction}") : source.index(r"\section{Related Work}")]
    printed = re.findall(r"(0\.\d{3}) \(CE loss\) vs\. (0\.\d{3}) \(PC loss\)", introduction)
    figures = load_published("gaps")
    values = [(figures[i].value, figures[i + 1].value) for i in range(0, len(figures), 2)]
    assert values == [(float(ce), float(pc)) for ce, pc in printed]
    assert [(figure.dataset, figure.column) for figure in figures[::2]] == [("cifar100", "ce"), ("tiny-imagenet", "ce")]


def test_names_are_ours_and_places_are_unique() -> None:
    figures = [figure for table in TABLES for figure in load_published(table)]
    places = {(figure.table, figure.dataset, figure.column, figure.row) for figure in figures}
    assert len(places) == len(figures) == 410
    assert {figure.dataset for figure in figures} <= set(dataset_names())
    assert {figure.model for figure in figures} <= set(model_names())
    assert all(0 <= figure.value <= (100 if figure.unit == "%" else 1) for figure in figures)


def test_marked_inconsistencies_are_all_there_are() -> None:
    """Figures in different tables that should be equal and are not: the same model under the same attack."""
    # Table 3 has rows of the same names for attacks by transfer; only its SPSA attacks the model itself.
    figures = [
        figure
        for table in TABLES[:5]
        for figure in load_published(table)
        if not figure.has("other settings") and (table != "table3" or figure.row.startswith("spsa"))
    ]
    seen: dict[tuple[str, str, str, str], PublishedFigure] = {}
    found = set()
    for figure in figures:
        first = seen.setdefault((figure.dataset, figure.model, figure.column, figure.row), figure)
        if first.value != figure.value:
            found.add((figure.table, figure.dataset, figure.column, figure.row))
    marked = {
        (figure.table, figure.dataset, figure.column, figure.row)
        for table in TABLES
        for figure in load_published(table)
        if figure.has("inconsistent")
    }
    assert found == marked
    assert len(found) == 3


BLOCK = {"dataset": "mnist", "model": "lenet5", "columns": ["ce", "pc-lc"], "rows": {"clean": [99.2, 99.2]}}


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ({"title": "x", "unit": "%"}, "Expected table9 to have `blocks`"),
        ({"title": "x", "unit": "points", "blocks": []}, "Expected `unit` of table9 to be one of %, probability"),
        ({"title": "x", "unit": "%", "blocks": [], "foo": 1}, "among title, unit, blocks, remarks, but got 'foo'"),
        ({"title": 1, "unit": "%", "blocks": []}, "Expected `title` of table9 to be of type str, but got 1"),
        ({"title": "x", "unit": "%", "blocks": [3]}, "Expected a block of table9 to be a table, but got 3"),
        (
            {"title": "x", "unit": "%", "blocks": [{**BLOCK, "rows": {"clean": [99.2]}}]},
            "Expected row 'clean' of table9, mnist, to have 2 figures",
        ),
    ],
)
def test_refusals(content: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_published("table9", content)


def test_unknown_table() -> None:
    with pytest.raises(ValueError, match="Expected `table` to be one of table1, table2"):
        load_published("table6")
