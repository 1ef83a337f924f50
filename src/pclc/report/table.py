"""Tables as data: what the page shows, sorts and copies."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pclc.evaluation import Accuracy

NONE = "–"
_LONG = 30  # characters


@dataclass(frozen=True)
class Cell:
    """A cell: what is read, and what it is sorted by where that is a number."""

    text: str
    value: float | None = None
    kind: str = ""

    @property
    def numeric(self) -> bool:
        """Whether it is aligned to the right."""
        return self.value is not None or self.text == NONE


@dataclass(frozen=True)
class Table:
    """Columns by name and rows of cells, the first of which names the row."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    sortable: bool = True

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column, whether all its cells are numbers."""
        return tuple(all(row[i].numeric for row in self.rows) for i in range(len(self.columns)))

    @property
    def long(self) -> tuple[bool, ...]:
        """For each column, whether it holds texts that need room."""
        return tuple(any(len(row[i].text) > _LONG for row in self.rows) for i in range(len(self.columns)))


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell | str]], sortable: bool = True) -> Table:
    """A table from cells and plain texts.

    Example:
        >>> table("x", ["name", "share"], [["a", percent(0.5)]]).rows[0][1].text
        '50.0'
    """
    cells = tuple(tuple(cell if isinstance(cell, Cell) else Cell(cell) for cell in row) for row in rows)
    return Table(caption, tuple(columns), cells, sortable)


def number(value: float | None, digits: int = 3) -> Cell:
    """A number with so many significant digits; whole numbers in full."""
    if value is None:
        return Cell(NONE)
    text = f"{value:,d}" if isinstance(value, int) else f"{value:.{digits}g}"
    return Cell(text, float(value))


def percent(share: Accuracy | float | None) -> Cell:
    """A share in percent, with one decimal."""
    return Cell(NONE) if share is None else Cell(f"{100 * float(share):.1f}", 100 * float(share))


def interval(accuracy: Accuracy | None) -> Cell:
    """The bounds of an accuracy in percent, sorted by the lower one."""
    if accuracy is None:
        return Cell(NONE)
    return Cell(f"{100 * accuracy.low:.1f} to {100 * accuracy.high:.1f}", 100 * accuracy.low)
