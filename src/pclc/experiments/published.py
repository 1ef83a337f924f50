"""What the paper prints: every figure of its tables, the gaps of its introduction, and what to know about them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from pclc.experiments.toml import check_keys, read_toml

TABLES = ("table1", "table2", "table3", "table4", "table5", "gaps")

# Half of the last digit that is printed, and how far an interval may reach before it decides nothing.
_ROUNDING = {"%": 0.05, "probability": 0.0005}
_MARKS = {"quoted": "*", "inconsistent": "†", "other settings": "‡", "heading": "§"}
_WIDEST = {"%": 5.0, "probability": 0.05}


@dataclass(frozen=True)
class Remark:
    """What a reader of some figures has to know.

    `kind` is "quoted" (from another paper), "inconsistent" (the paper has another figure for the same thing elsewhere),
    "other settings" (than the row of that name in another table) or "heading" (a slip in the printed table); each has
    a mark of its own.
    """

    kind: str
    text: str
    datasets: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()

    @property
    def mark(self) -> str:
        """What stands behind a figure that it is about."""
        return _MARKS[self.kind]

    def concerns(self, dataset: str, column: str, row: str) -> bool:
        """Whether it is about that figure; an empty list stands for all."""
        pairs = (self.datasets, dataset), (self.columns, column), (self.rows, row)
        return all(not names or name in names for names, name in pairs)


@dataclass(frozen=True)
class PublishedFigure:
    """One figure of the paper, with its place.

    Attributes:
        table: name of the table.
        dataset: ours, such as "fashion-mnist".
        model: the network that the paper names for it.
        column: the loss, "ce", "gce", "pc-lc", with "+at" after adversarial training.
        row: "clean", or the attack and its parameter (eps, for C&W the confidence), such as "pgd 0.1".
        value: as printed.
        unit: "%" or "probability".
        remarks: what to know about it.
    """

    table: str
    dataset: str
    model: str
    column: str
    row: str
    value: float
    unit: str
    remarks: tuple[Remark, ...] = ()

    @property
    def rounding(self) -> float:
        """Half a unit of the last printed digit."""
        return _ROUNDING[self.unit]

    @property
    def widest(self) -> float:
        """Half-width from which on an interval around it is too wide to decide anything: five points."""
        return _WIDEST[self.unit]

    def has(self, kind: str) -> bool:
        """Whether there is a remark of that kind."""
        return any(remark.kind == kind for remark in self.remarks)


@cache
def load_published(table: str) -> tuple[PublishedFigure, ...]:
    """The figures of a table of the paper ("table1" ... "table5"), or the "gaps" of its introduction.

    Example:
        >>> figures = load_published("table1")
        >>> len(figures), figures[2].dataset, figures[2].column, figures[2].row, figures[2].value
        (140, 'mnist', 'ce', 'fgsm 0.1', 71.5)
    """
    if table not in TABLES:
        raise ValueError(f"Expected `table` to be one of {', '.join(TABLES)}, but got {table!r}.")
    return tuple(parse_published(table, read_toml("paper", table)))


def parse_published(table: str, content: Mapping[str, Any]) -> list[PublishedFigure]:
    """The figures that the content of a file describes."""
    check_keys(content, table, required={"title": str, "unit": str, "blocks": list}, optional={"remarks": list})
    if content["unit"] not in _ROUNDING:
        raise ValueError(
            f"Expected `unit` of {table} to be one of {', '.join(_ROUNDING)}, but got {content['unit']!r}."
        )
    remarks = [_remark(table, remark) for remark in content.get("remarks", [])]
    figures: list[PublishedFigure] = []
    for block in content["blocks"]:
        check_keys(block, f"a block of {table}", required={"dataset": str, "model": str, "columns": list, "rows": dict})
        for row, values in block["rows"].items():
            if not isinstance(values, list) or len(values) != len(block["columns"]):
                raise ValueError(
                    f"Expected row {row!r} of {table}, {block['dataset']}, to have {len(block['columns'])} figures, "
                    f"but got {values!r}."
                )
            for column, value in zip(block["columns"], values, strict=True):
                place = block["dataset"], column, row
                figures.append(
                    PublishedFigure(
                        table=table,
                        dataset=block["dataset"],
                        model=block["model"],
                        column=column,
                        row=row,
                        value=float(value),
                        unit=content["unit"],
                        remarks=tuple(remark for remark in remarks if remark.concerns(*place)),
                    )
                )
    return figures


def _remark(table: str, content: Mapping[str, Any]) -> Remark:
    lists = dict.fromkeys(("datasets", "columns", "rows"), list)
    check_keys(content, f"a remark of {table}", required={"kind": str, "text": str}, optional=lists)
    return Remark(content["kind"], content["text"], **{name: tuple(content.get(name, ())) for name in lists})
