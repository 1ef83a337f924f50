"""What the tests of the command share."""

from pathlib import Path

import pytest
import torch
from typed_command import Command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # the demo would set those of the other tests too
    return Command(monkeypatch, capfd)
