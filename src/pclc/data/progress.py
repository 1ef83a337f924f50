"""The progress bar of everything that takes a while: on stderr, so that output can be piped."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


def progress_bar(*texts: str) -> "Progress":
    """Return a bar with a description, the given texts, and the time elapsed and left.

    On a narrow terminal the texts wrap to a second line; times are never cut.
    """
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.table import Column

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        *(TextColumn(text, markup=False, table_column=Column(no_wrap=False)) for text in texts),
        TimeElapsedColumn(table_column=Column(no_wrap=True)),
        TextColumn("left"),
        TimeRemainingColumn(table_column=Column(no_wrap=True)),
        console=Console(stderr=True),
        # By default rich forgets what is older than 30 seconds, so that a long epoch or attack would have no speed.
        speed_estimate_period=math.inf,
    )
