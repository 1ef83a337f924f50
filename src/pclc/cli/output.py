"""How tables look on the terminal, and what is said when somebody does not wait for them."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from pclc.bench.result import show

if TYPE_CHECKING:
    from rich.console import Console

_ANY = 10_000  # columns: as if no table were too wide


def console() -> "Console":
    """Into a file or a pipe all goes in full width, so that no cell is cut."""
    from rich.console import Console

    # Brackets in a path or in an attack are no markup.
    return Console(width=None if sys.stdout.isatty() else 200, markup=False)


def print_table(rows: Sequence[Mapping[str, Any]], title: str | None = None, *, lift: bool = False) -> None:
    """Print rows that share their columns; with `lift`, texts that are the same in all stand above them, once.

    Where the terminal is too narrow for the words of a table, each row is a line that can be broken anywhere.
    """
    from rich.measure import Measurement
    from rich.table import Table

    columns = list(rows[0])
    settings = [name for name in columns if not isinstance(rows[0][name], float)]  # not what was measured
    common = [name for name in settings if lift and len(rows) > 1 and len({show(row[name]) for row in rows}) == 1]
    shown = console()
    if title:
        shown.print(title, highlight=False)
    if common:
        shown.print("; ".join(f"{name} {show(rows[0][name])}" for name in common), highlight=False)
    table = Table()
    own = [name for name in columns if name not in common]
    for name in own:
        table.add_column(name, justify="left" if isinstance(rows[0][name], str) else "right")
    for row in rows:
        table.add_row(*(show(row[name]) for name in own))
    if Measurement.get(shown, shown.options.update(width=_ANY), table).minimum <= shown.width:
        shown.print(table)
        return
    first, *rest = own
    for row in rows:
        told = "; ".join(f"{name} {text}" for name in rest if (text := show(row[name])) != "-")
        shown.print(f"{show(row[first])}: {told}", highlight=False)


@contextmanager
def interruptible(kept: Callable[[], str]) -> Iterator[None]:
    """Say once, when somebody interrupts, what is `kept` and what the same command will do."""
    try:
        yield
    except KeyboardInterrupt:
        if os.environ.get("RANK", "0") == "0":
            typer.echo(f"pclc: interrupted; {kept()}", err=True)
        raise


def what_is_found(folder: Path | None, state: str) -> str:
    """What the same command will do after an interruption, where attacks leave their outcomes in the folder `state`."""
    if folder is None:
        return "nothing is saved without --out FOLDER, so the same command starts over."
    if not any((folder / state).glob("*.safetensors")):
        return "no attack was finished yet, so the same command starts over."
    return f"results so far are in {folder / state}, and the same command continues from there."
