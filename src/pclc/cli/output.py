"""How tables look on the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from pclc.bench.result import show


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> None:
    """Print rows that share their columns."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column, value in rows[0].items():
        table.add_column(column, justify="left" if isinstance(value, str) else "right")
    for row in rows:
        table.add_row(*(show(value) for value in row.values()))
    Console().print(table)
