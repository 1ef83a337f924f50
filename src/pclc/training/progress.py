"""Progress of a run: loss, accuracy, images per second and time left; and TensorBoard's files."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from pclc.data.progress import progress_bar

_SCALARS = (
    "loss",
    "accuracy",
    "validation_accuracy",
    "validation_robust_accuracy",
    "train_robust_accuracy",
    "lr",
    "images_per_second",
)
_EVERY = 1.0  # seconds between two updates within an epoch

Progress = Callable[[dict[str, Any]], None]  # sees every epoch as it ends


class Bar:
    """A progress bar on stderr; where that is a file, which cannot show a bar, one line per epoch."""

    def __init__(self, title: str, epochs: int, done: int) -> None:
        self.display = progress_bar("{task.fields[done]}/{task.total}", "{task.fields[state]}")
        self._task = self.display.add_task(title, total=epochs, completed=done, done=done, state="")
        self._done, self._told = done, time.monotonic()

    def step(self, share: float) -> None:
        """Show that `share` of the current epoch is done."""
        if time.monotonic() - self._told >= _EVERY:
            self._told = time.monotonic()
            self.display.update(self._task, completed=self._done + share)

    def __call__(self, entry: dict[str, Any]) -> None:
        """Show the entry of an epoch that has ended."""
        state = f"loss {entry['loss']:.4f} acc {entry['accuracy']:.4f}"
        if entry.get("validation_accuracy") is not None:
            state += f" val {entry['validation_accuracy']:.4f}"
        for split in ("validation", "train"):
            if entry.get(f"{split}_robust_accuracy") is not None:
                state += f" robust {entry[f'{split}_robust_accuracy']:.4f}"
        state += f" {entry['images_per_second']:,.0f} img/s"
        self._done = entry["epoch"]
        self.display.update(self._task, completed=self._done, done=self._done, state=state)
        console, (task,) = self.display.console, self.display.tasks
        if not (task.finished or console.is_terminal or console.is_jupyter):
            left = "" if task.time_remaining is None else f", {timedelta(seconds=task.time_remaining)} left"
            text = f"{task.description} epoch {self._done} of {task.total}: {state}{left}"
            console.print(text, markup=False, soft_wrap=True)


@contextmanager
def bar(title: str, epochs: int, done: int, shown: bool) -> Iterator[Bar | None]:
    """A bar, or None unless `shown`."""
    if not shown:
        yield None
        return
    line = Bar(title, epochs, done)
    with line.display:
        yield line


@contextmanager
def tensorboard(folder: Path | None, done: int) -> Iterator[Progress]:
    """Write scalars for TensorBoard, where it is installed; entries after the first `done` epochs are replaced."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        folder = None
    if folder is None:
        yield lambda entry: None
        return
    writer = SummaryWriter(str(folder / "tensorboard"), purge_step=done + 1)

    def write(entry: dict[str, Any]) -> None:
        for name in _SCALARS:
            if entry.get(name) is not None:
                writer.add_scalar(name, entry[name], entry["epoch"])

    try:
        yield write
    finally:
        writer.close()
