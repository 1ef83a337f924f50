"""What an evaluation shows while it goes on."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Advance = Callable[[str, int], None]  # what has just been done, and for how many examples


@contextmanager
def bar(total: int, shown: bool) -> Iterator[Advance]:
    """A line on the error stream that moves with every attack on every chunk; nothing unless `shown`."""
    if not shown:
        yield lambda text, n: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (
        TextColumn("evaluating"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:.0f} %"),
        TextColumn("{task.description}", markup=False),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # Without a limit rich forgets what is older than 30 seconds, and of one attack alone it knows no speed.
    with Progress(*columns, console=Console(file=sys.stderr), speed_estimate_period=math.inf) as display:
        task = display.add_task("", total=total)
        yield lambda text, n: display.update(task, advance=n, description=text[:40])
        display.update(task, completed=total)  # what was not needed is done too
