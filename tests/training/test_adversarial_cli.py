"""`pclc train --adversarial` as a user types it."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pclc.cli.app import app

TRAIN = ("train", "digits", "--loss", "ce", "--epochs", "1", "--warm-up-epochs", "0", "--device", "cpu")


def test_train_adversarially(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = "--adversarial trades --eps 8/255 --step-size 4/255 --steps 3 --beta 2 --ramp-epochs 4 --validation 0.1"
    optimizer = "--ema 0.9 --optimizer sgd --momentum 0.8 --schedule cosine --warm-up-share 0.1 --lr 0.05"
    done = CliRunner().invoke(app, [*TRAIN, *options.split(), *optimizer.split()], catch_exceptions=False)
    assert "runs/digits-lenet8-ce-trades-0: accuracy 0." in done.stdout
    assert "epoch 1 was the best under attack" in done.stdout
    config = json.loads((tmp_path / "runs/digits-lenet8-ce-trades-0/config.json").read_text())["run"]["train"]
    assert config["adversarial"] == {
        "method": "trades", "eps": 8 / 255, "alpha": 4 / 255, "steps": 3, "random_start": True, "objective": "kl",
        "beta": 2.0, "norm": "Linf", "ramp_epochs": 4, "validate_every": 1,
    }  # fmt: skip
    assert (config["optimizer"], config["momentum"], config["schedule"]) == ("sgd", 0.8, "cosine")
    assert (config["warm_up_share"], config["ema"]) == (0.1, 0.9)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--adversarial pgd", "Expected a recipe of adversarial training (paper-grey, "),
        ("--eps 0.1 --step-size 0.1", "Expected --eps, --step-size to be used with --adversarial, one of paper-grey"),
        ("--adversarial fast --eps eight", "Expected --eps to be a number such as 0.3 or 8/255, but got 'eight'"),
        ("--adversarial paper-grey --eps 0.3,0.1", "low <= high, but got (0.3, 0.1)"),
        ("--adversarial madry-mnist --beta 6", "Expected `beta` to be used with method"),
        ("--optimizer lion", "Expected `optimizer` to be adam or sgd, but got 'lion'"),
    ],
)
def test_a_mistake_ends_in_a_sentence(options: str, sentence: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*TRAIN, *options.split(), "--out", str(tmp_path / "run")])
    assert isinstance(done.exception, ValueError), "which the command shows without a traceback"
    assert sentence in str(done.exception)
    assert not (tmp_path / "run").exists()
