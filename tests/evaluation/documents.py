"""Results as two runs must agree on them, and a program run by one process and by two."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def without_seconds(document: dict[str, Any]) -> dict[str, Any]:
    """The document of an evaluation or audit, times left out."""
    attacks = [{key: value for key, value in attack.items() if key != "seconds"} for attack in document["attacks"]]
    return {key: value for key, value in document.items() if key != "seconds"} | {"attacks": attacks}


def run_by_one_and_two(program: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Run a program here and under torchrun; it gets a folder for its result and where others' results begin.

    Returns:
        The folders `one` and `two`; beside them `single0`, `rank0` and `rank1` have what each process kept.
    """
    script, one, two = folder / "program.py", folder / "one", folder / "two"
    script.write_text(program)
    monkeypatch.setattr(sys, "argv", ["program", str(one), str(folder / "single")])
    exec(program, {})
    torchrun = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(script), str(two), str(folder / "rank")], check=True)
    return one, two
