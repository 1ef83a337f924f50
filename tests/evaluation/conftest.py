"""What the tests of evaluation share: a small model, half trained, on digits."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import pclc
from pclc.cli import main


class Case(NamedTuple):
    model: nn.Module
    x: Tensor
    y: Tensor


@pytest.fixture(scope="session")
def trained() -> nn.Module:
    torch.manual_seed(0)
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=4, batch_size=64, lr=0.005)
    execution = pclc.Execution(device="cpu")
    return pclc.train(pclc.create_model("lenet8"), pclc.load_dataset("digits"), config, execution=execution).model


@pytest.fixture
def case(trained: nn.Module) -> Case:
    test = pclc.load_dataset("digits", "test")
    return Case(trained.eval(), test.images[:120].float() / 255, test.labels[:120])


class Done(NamedTuple):
    code: int
    out: str
    err: str


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    """Run `pclc` with arguments, in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str | Path) -> Done:
        monkeypatch.setattr("sys.argv", ["pclc", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return Done(int(ended.value.code or 0), captured.out, captured.err)

    return run
