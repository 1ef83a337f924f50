"""How tables look on the terminal."""

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pclc.bench.result import show

if TYPE_CHECKING:
    from rich.console import Console


def console() -> "Console":
    """Into a file or a pipe all goes in full width, so that no cell is cut."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows that share their columns; what is the same in all of them stands above the table, once."""
    from rich.table import Table

    columns = list(rows[0])
    settings = [name for name in columns if not isinstance(rows[0][name], float)]  # not what was measured
    common = [name for name in settings if len(rows) > 1 and len({show(row[name]) for row in rows}) == 1]
    shown = console()
    if title:
        shown.print(title, highlight=False)
    if common:
        shown.print("; ".join(f"{name} {show(rows[0][name])}" for name in common), highlight=False)
    table = Table()
    for name in columns:
        if name not in common:
            table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(show(row[name]) for name in columns if name not in common))
    shown.print(table)
