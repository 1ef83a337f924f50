"""`pclc train --adversarial` as a user types it."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from pclc.cli.app import app
from pclc.training import TrainConfig, adversarial_config

TRAIN = ("train", "digits", "--loss", "ce", "--epochs", "1", "--warm-up-epochs", "0", "--device", "cpu")


def test_train_adversarially(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = "--adversarial trades --norm L2 --eps 1/4 --step-size 0.125 --steps 3 --beta 2 --ramp-epochs 4"
    optimizer = (
        "--validation 0.1 --ema 0.9 --optimizer sgd --momentum 0.8 --schedule cosine --warm-up-share 0.1 --lr 0.05"
    )
    done = CliRunner().invoke(app, [*TRAIN, *options.split(), *optimizer.split()], catch_exceptions=False)
    assert "runs/digits-lenet8-ce-trades-0: accuracy 0." in done.stdout
    assert "the weights are of epoch 1, the best under attack" in done.stdout
    config = json.loads((tmp_path / "runs/digits-lenet8-ce-trades-0/config.json").read_text())["run"]["train"]
    assert config["adversarial"] == {
        "method": "trades", "eps": 0.25, "alpha": 0.125, "steps": 3, "random_start": True, "objective": "kl",
        "beta": 2.0, "norm": "L2", "ramp_epochs": 4, "validate_every": 1,
    }  # fmt: skip
    assert (config["optimizer"], config["momentum"], config["schedule"]) == ("sgd", 0.8, "cosine")
    assert (config["warm_up_share"], config["ema"]) == (0.1, 0.9)


def train_config(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """What was printed, and what the run directory says was done."""
    options = [*arguments, "--epochs", "1", "--device", "cpu", "--json"]
    done = CliRunner().invoke(app, ["train", "digits", *options], catch_exceptions=False)
    out = json.loads(done.stdout)["run"]
    return out, json.loads((tmp_path / out / "config.json").read_text())["run"]["train"]


def test_the_milestones_are_a_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert train_config(tmp_path, "--milestones", "1/2,0.75")[1]["milestones"] == [0.5, 0.75]


def test_train_with_pc_by_its_name_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    out, config = train_config(tmp_path, "--adversarial", "pc")
    assert out == "runs/digits-lenet8-ce-pc-0"
    assert config == adversarial_config("digits", "pc", epochs=1).as_dict()
    out, config = train_config(tmp_path, "--adversarial", "pc-fast", "--seed", "1")
    assert out == "runs/digits-lenet8-ce-pc-fast-1"
    assert config == adversarial_config("digits", "pc-fast", epochs=1, seed=1).as_dict()


def test_the_numbers_of_pc_go_to_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    numbers = "--beta 4 --margin 0.5 --clean-share 0.5 --kl-weight 2 --logit-weight 0.1 --label-smoothing 0.1"
    _, config = train_config(tmp_path, "--adversarial", "trades", "--method", "pc", *numbers.split(), "--steps", "2")
    recipe = config["adversarial"]
    assert [recipe[name] for name in ("beta", "margin", "clean_share", "kl_weight", "logit_weight")] == [
        4.0, 0.5, 0.5, 2.0, 0.1,
    ]  # fmt: skip
    assert (config["label_smoothing"], config["margin"], config["logit_weight"]) == (0.1, 0.995, 0.05)


@pytest.mark.parametrize(
    ("recipe", "loss", "phases"),
    [(["--adversarial", "paper-grey"], "pc-lc", 2), (["--adversarial", "fast"], "ce", 1), ([], "pc-lc", 2)],
)
def test_the_loss_and_the_phases_that_nobody_named(
    recipe: list[str], loss: str, phases: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _, config = train_config(tmp_path, *recipe)
    assert config["loss"] == loss
    assert [phase.epochs for phase in TrainConfig.from_dict(config).phases] == [1] * phases


def test_bench_pc_beside_itself_without_pc() -> None:
    arguments = ["bench", "train", "digits", "--adversarial", "pc", "--epochs", "1", "--device", "cpu", "--json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    rows = json.loads(done.stdout)["rows"]
    assert [(row["variant"], row["batch"], row["adversarial"]) for row in rows] == [
        ("pclc, ce", 128, "pc, 7 steps"),
        ("pclc, ce + 10 PC", 128, "pc, 7 steps"),
    ]
    refused = CliRunner().invoke(app, [*arguments, "--loss", "ce"])
    assert 'Expected no losses for method "pc"' in str(refused.exception)


@pytest.mark.parametrize(
    ("options", "sentences"),
    [
        (
            "--margin 0.5 --alpha 1",
            ["--margin has no effect with --loss ce, only with pc or pc-lc", "--alpha has"],
        ),
        ("--loss pc --margin 0.5 --logit-weight 1", ["--logit-weight has no effect with --loss pc, only with pc-lc"]),
        ("--warm-up-share 0.1", ["--warm-up-share has no effect with --schedule step, only with cosine."]),
        ("--adversarial fast --lr-factor 0.1", ["--lr-factor has no effect with --schedule cosine, only with step."]),
        ("--adversarial pc --margin 0.5 --logit-weight 0.1", []),
        ("--loss gce --alpha 0.5 --lr-factor 0.5 --milestones 0.5,0.75", []),
    ],
)
def test_an_option_without_effect_is_said(options: str, sentences: list[str], tmp_path: Path) -> None:
    arguments = [*TRAIN, *options.split(), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.stderr.count("has no effect") == len(sentences)
    for sentence in sentences:
        assert sentence in done.stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--adversarial pgd", "Expected a recipe of adversarial training (paper-grey, "),
        ("--eps 0.1 --step-size 0.1", "Expected --eps, --step-size to be used with --adversarial, one of paper-grey"),
        ("--adversarial fast --eps eight", "Expected --eps to be a number such as 0.3 or 8/255, but got 'eight'"),
        ("--adversarial fast --step-size 2/", "Expected --step-size to be a number such as 0.3 or 8/255, but got '2/'"),
        ("--adversarial fast --norm L2", "Expected `eps` with norm='L2', since that of 'fast' is for Linf"),
        ("--norm L2", "Expected --norm to be used with --adversarial, one of paper-grey"),
        ("--adversarial paper-grey --eps 0.3,0.1", "low <= high, but got (0.3, 0.1)"),
        ("--adversarial madry-mnist --beta 6", "Expected `beta` to be used with method"),
        ("--clean-share 0.5", "Expected --clean-share to be used with --adversarial, one of paper-grey"),
        ("--adversarial pc --clean-share 2", "Expected `clean_share` to be in [0, 1], but got 2.0"),
        ("--adversarial trades --kl-weight 2", 'Expected `kl_weight` to be used with method "pc", but got 2.0'),
        ("--adversarial pc --loss gce", "Expected `loss` to be 'ce' in adversarial training with method \"pc\""),
        ("--loss gce --label-smoothing 0.1", "Expected `label_smoothing` to be used with cross-entropy"),
        ("--optimizer lion", "Expected `optimizer` to be adam or sgd, but got 'lion'"),
    ],
)
def test_a_mistake_ends_in_a_sentence(options: str, sentence: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, [*TRAIN, *options.split(), "--out", str(tmp_path / "run")])
    assert isinstance(done.exception, ValueError), "which the command shows without a traceback"
    assert sentence in str(done.exception)
    assert not (tmp_path / "run").exists()
