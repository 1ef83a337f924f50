"""What an evaluation shows while it runs."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pclc.data.progress import progress_bar

Advance = Callable[[str, int], None]  # what has just been done, and for how many examples


@contextmanager
def bar(total: int, shown: bool) -> Iterator[Advance]:
    """A line on the error stream that moves with every attack on every chunk; nothing unless `shown`."""
    if not shown:
        yield lambda text, n: None
        return
    with progress_bar("{task.percentage:.0f} %", "{task.fields[done]}") as display:
        task = display.add_task("evaluating", total=total, done="")
        yield lambda text, n: display.update(task, advance=n, done=text[:40])
        display.update(task, completed=total)  # what was not needed is done too
