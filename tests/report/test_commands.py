"""The commands that a page shows: they are short, and give the configuration of the run."""

import json
from pathlib import Path
from typing import Any

import pytest

from pclc.report.commands import training_command
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
    words = training_command(run_directory(tmp_path / "b", paper_config("cifar10", loss="gce", lr=0.02, seed=4)))
    assert words == "pclc train cifar10 --loss gce --seed 4 --lr 0.02 --model vgg13 --precision bf16 --out runs/b"
