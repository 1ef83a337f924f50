"""How tables look on the terminal."""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pclc.bench.result import show


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows that share their columns; what is the same in all of them stands above the table, once."""
    from rich.console import Console
    from rich.table import Table

    columns = list(rows[0])
    settings = [name for name in columns if not isinstance(rows[0][name], float)]  # not what was measured
    common = [name for name in settings if len(rows) > 1 and len({show(row[name]) for row in rows}) == 1]
    # Into a file or a pipe a table goes in full width, so that no cell is cut.
    console = Console(width=None if sys.stdout.isatty() else 200)
    if title:
        console.print(title, highlight=False)
    if common:
        console.print("; ".join(f"{name} {show(rows[0][name])}" for name in common), highlight=False)
    table = Table()
    for name in columns:
        if name not in common:
            table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(show(row[name]) for name in columns if name not in common))
    console.print(table)
