"""The command as a user types it, in this process: a new one takes two seconds to import torch."""

import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from pclc.cli import main


class Said(NamedTuple):
    """What a command printed."""

    out: str
    err: str


class Command:
    """Runs the command in a folder of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capfd = monkeypatch, capfd

    def __call__(self, *words: str | Path, code: int = 0) -> Said:
        """What it says; it has to end with this code."""
        self.monkeypatch.setattr(sys, "argv", ["pclc", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            main()
        said = Said(*self.capfd.readouterr())
        assert end.value.code == code, said.err
        assert ("Traceback" in said.err) == (code == 70)
        return said
