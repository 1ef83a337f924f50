"""The cells of the tables in the paper's LaTeX source, read without any knowledge of our own files."""

import re
from typing import NamedTuple

LABELS = {
    "table:whitebox": "table1",
    "table:compare": "table2",
    "table:black": "table3",
    "table:cifar100": "table4",
    "table:AT": "table5",
}


class PaperCell(NamedTuple):
    """Where a figure stands, in the paper's own words."""

    table: str
    dataset: str
    column: str
    attack: str
    parameter: str


def read_tables(source: str) -> dict[PaperCell, float]:
    """Every figure of every table."""
    cells: dict[PaperCell, float] = {}
    for float_ in re.findall(r"\\begin\{table\*?\}.*?\\end\{table\*?\}", source, flags=re.DOTALL):
        label = re.search(r"\\label\{(.*?)\}", float_)
        body = re.search(r"\\begin\{tabular\}\{[^}]*\}(.*?)\\end\{tabular\}", float_, flags=re.DOTALL)
        assert label, float_
        assert body, float_
        for cell, value in _read_tabular(LABELS[label[1]], body[1]):
            assert cell not in cells, cell
            cells[cell] = value
    return cells


def _read_tabular(table: str, body: str) -> list[tuple[PaperCell, float]]:
    lines = [line for line in re.split(r"\\\\", body.replace("\\hline", "")) if "&" in line]
    first, second, *rest = [[_plain(cell) for cell in _split(line)] for line in lines]
    datasets = [name for name, width in first for _ in range(width)]
    columns = [name for name, _ in second]
    assert len(datasets) == len(columns)
    found, attack = [], ""
    for line in rest:
        cells = [name for name, _ in line]
        assert len(cells) == len(columns), cells
        attack, parameter = cells[0] or attack, ""
        for dataset, column, text in list(zip(datasets, columns, cells, strict=True))[1:]:
            if dataset == "Param.":
                parameter = text
            else:
                found.append((PaperCell(table, dataset, column, attack, parameter), float(text)))
    return found


def _split(line: str) -> list[str]:
    return re.split(r"(?<!\\)&", line)


def _plain(cell: str) -> tuple[str, int]:
    """The text of a cell and how many columns it is wide."""
    text, width = cell.strip(), 1
    while command := re.fullmatch(r"\\(multicolumn|multirow|textbf)(?:\{([^{}]*)\}\{[^{}]*\})?\{(.*)\}", text):
        if command[1] == "multicolumn":
            width = int(command[2])
        text = command[3].strip()
    return text.strip("$ ").replace("\\&", "&"), width
