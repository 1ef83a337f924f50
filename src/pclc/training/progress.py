"""What a run shows while it goes on: loss, accuracy, images a second, time left; and TensorBoard's files."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

_SCALARS = (
    "loss",
    "accuracy",
    "validation_accuracy",
    "validation_robust_accuracy",
    "train_robust_accuracy",
    "lr",
    "images_per_second",
)


class Progress(Protocol):
    """Sees every epoch as it ends."""

    def __call__(self, entry: dict[str, Any]) -> None:
        """Take note of an epoch."""


@contextmanager
def bar(title: str, epochs: int, done: int, shown: bool) -> Iterator[Progress]:
    """A line that moves with the epochs, on the error stream; nothing unless `shown`."""
    if not shown:
        yield lambda entry: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.fields[state]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=Console(file=sys.stderr)) as display:
        task = display.add_task(title, total=epochs, completed=done, state="")

        def show(entry: dict[str, Any]) -> None:
            state = f"loss {entry['loss']:.4f} acc {entry['accuracy']:.4f}"
            if entry.get("validation_accuracy") is not None:
                state += f" val {entry['validation_accuracy']:.4f}"
            for split in ("validation", "train"):
                if entry.get(f"{split}_robust_accuracy") is not None:
                    state += f" robust {entry[f'{split}_robust_accuracy']:.4f}"
            display.update(task, advance=1, state=f"{state} {entry['images_per_second']:,.0f} img/s")

        yield show


@contextmanager
def tensorboard(folder: Path | None) -> Iterator[Progress]:
    """Scalars for TensorBoard, where it is installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        folder = None
    if folder is None:
        yield lambda entry: None
        return
    writer = SummaryWriter(str(folder / "tensorboard"))

    def write(entry: dict[str, Any]) -> None:
        for name in _SCALARS:
            if entry.get(name) is not None:
                writer.add_scalar(name, entry[name], entry["epoch"])

    try:
        yield write
    finally:
        writer.close()
