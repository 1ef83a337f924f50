"""What a benchmark found, with the conditions under which it did, as a file and as a table."""

import json
import os
import platform
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from pclc import __version__
from pclc.experiments.pages_text import markdown_table
from pclc.files import write_atomically


@dataclass(frozen=True)
class BenchResult:
    """Rows of one benchmark; all rows have the same columns.

    Attributes:
        benchmark: name of the command.
        command: that repeats it.
        notes: what the columns mean.
        conditions: where and with what it was measured.
        rows: what was measured.
        trained: commands that made the models, where it is about trained ones.
    """

    benchmark: str
    command: str
    notes: tuple[str, ...]
    conditions: dict[str, str]
    rows: tuple[dict[str, Any], ...]
    trained: tuple[str, ...] = ()

    def save(self, path: Path) -> None:
        """Write the result as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (json.dumps(asdict(self), indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> "BenchResult":
        """Read what :meth:`save` wrote."""
        content = json.loads(path.read_text())
        return cls(**{**content, **{key: tuple(value) for key, value in content.items() if isinstance(value, list)}})

    def markdown(self) -> str:
        """The result as a section of a page."""
        conditions = "; ".join(f"{name} {value}" for name, value in self.conditions.items())
        table = markdown_table([{column: show(value) for column, value in row.items()} for row in self.rows])
        commands = "\n".join(["```", *self.trained, self.command, "```"]) if self.trained else f"`{self.command}`"
        return "\n\n".join([commands, f"{conditions}.", *self.notes, table]) + "\n"


def show(value: Any) -> str:
    """A cell as text: four significant digits for floats."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return "-" if value is None else str(value)


def conditions(device: torch.device) -> dict[str, str]:
    """Where and with what something was measured."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": name,
        **({} if device.type == "cuda" else {"threads": str(torch.get_num_threads())}),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "pclc": __version__,
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"
