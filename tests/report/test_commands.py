"""The commands that a page shows: they are short, and give the configuration of the run."""

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from result_files import audited, measured, trained

import pclc
from pclc.report import load_runs
from pclc.report.commands import commands_of, training_command
from pclc.training import ADVERSARIAL_PRESETS, TrainConfig, adversarial_config, adversarial_preset, paper_config


def run_directory(folder: Path, config: TrainConfig) -> Path:
    folder.mkdir()
    content: dict[str, Any] = {
        "dataset": {"name": "cifar10"},
        "model": {"name": "vgg13", "normalize": None},
        "train": config.as_dict(),
        "precision": "bf16",
    }
    (folder / "config.json").write_text(json.dumps({"version": 1, "run": content}))
    (folder / "training.json").write_text(json.dumps({"version": 1, "device": "NVIDIA H200"}))
    return folder


@pytest.mark.parametrize("name", ADVERSARIAL_PRESETS)
def test_a_recipe_as_it_is_needs_no_option_but_its_name(name: str, tmp_path: Path) -> None:
    config = adversarial_config("cifar10", adversarial_preset(name))
    words = training_command(run_directory(tmp_path / "net", config)).replace("\\\n", " ").split()
    shown = words[words.index("--adversarial") + 1]
    assert adversarial_config("cifar10", adversarial_preset(shown)) == config  # two names may stand for one recipe
    assert words[-2:] == ["--out", "runs/net"]
    assert [word for word in words if word.startswith("--")] == [
        "--loss", "--seed", "--adversarial", "--model", "--precision", "--out",
    ]  # fmt: skip


def test_what_differs_is_named_as_people_write_it(tmp_path: Path) -> None:
    recipe = adversarial_preset("madry-cifar10", eps=4 / 255, alpha=0.01)
    words = training_command(run_directory(tmp_path / "a", adversarial_config("cifar10", recipe, epochs=3)))
    assert "--adversarial madry-cifar10 --eps 4/255 --step-size 0.01 --epochs 3" in words.replace(" \\\n ", "")
    words = training_command(run_directory(tmp_path / "c", adversarial_config("cifar10", replace(recipe, norm="L2"))))
    assert "--adversarial madry-cifar10 --eps 4/255 --norm L2 --step-size 0.01" in words.replace(" \\\n ", "")
    words = training_command(
        run_directory(tmp_path / "b", paper_config("cifar10", loss="gce", milestones=(0.5,), seed=4))
    )
    assert (
        words == "pclc train cifar10 --loss gce --seed 4 --milestones 0.5 --model vgg13 --precision bf16 --out runs/b"
    )


def test_no_command_stands_for_a_training_on_own_images(tmp_path: Path) -> None:
    """`pclc train` would read all of the official files."""
    part = pclc.load_dataset("digits").subset(range(64))
    config = TrainConfig(loss="ce", warm_up_epochs=0, epochs=1, batch_size=32)
    pclc.train(pclc.create_model("lenet8"), part, config, out=tmp_path / "part")
    (command,) = commands_of(load_runs([tmp_path / "part"])[0])
    assert command.startswith("# Training: pclc.train on images of your own, digits (hash ")
    assert command == training_command(tmp_path / "part")


def audit_command(folder: Path, **changes: Any) -> str:
    """The command of an audit with these conditions."""
    content = json.loads((audited(folder) / "audit.json").read_text())
    content["conditions"] |= {"data": "mnist, test", "model": "my.package:net", "loss": "ce", "twin": None, **changes}
    (folder / "audit.json").write_text(json.dumps(content))
    return commands_of(load_runs([folder])[0])[-1]


def test_an_audit_of_the_folders_own_model_is_a_command(tmp_path: Path) -> None:
    folder = trained(tmp_path / "x")
    plain = ["pclc", "audit", str(folder), "--norm", "Linf", "--eps", "0.2", "--quick", "--examples", "100"]
    plain += ["--seed", "0", "--device", "cpu"]
    for changes, added in (
        ({}, []),
        ({"data": "kmnist, train"}, ["--dataset", "kmnist", "--split", "train"]),
        ({"loss": "pc-lc"}, ["--loss", "pc-lc"]),
        ({"precision": "bf16"}, ["--precision", "bf16"]),
    ):
        assert shlex.split(audit_command(folder, **changes).replace("\\\n", "")) == plain + added


def test_what_a_folder_does_not_know_is_a_comment(tmp_path: Path) -> None:
    own, results = trained(tmp_path / "own"), tmp_path / "results"
    results.mkdir()
    hashed = "m" * 16
    for shown, missing in (
        (audit_command(own, twin="t" * 16), f"(--transfer-from with a run whose model has the hash {'t' * 16}): pclc"),
        (audit_command(own, data="the given images"), f"(--dataset for the given images (hash {'d' * 16})): pclc"),
        (audit_command(results), f"--weights, of my.package:net (hash {hashed})): pclc audit MODEL --out {results} "),
        (audit_command(results, model="two\nlines"), "of two lines (hash"),
        (commands_of(load_runs([measured(tmp_path / "evaluated", 9)])[0])[-1], "pclc evaluate MODEL --out "),
    ):
        assert shown.startswith("# To be filled in (")
        assert missing in shown
        assert "\n" not in shown
    assert audit_command(results).endswith(" --dataset mnist --loss ce")
