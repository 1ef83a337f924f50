"""Models that are trained in another precision than the run's: other models, attacked as the others are."""

from dataclasses import replace
from pathlib import Path

import pytest
from small_grid import EXECUTION, SMALL

from pclc.experiments.experiment import load_experiment
from pclc.experiments.store import Store
from pclc.experiments.trained import trained_model, warm_up_of


def test_a_training_with_a_precision_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL.replace("seeds = 2", 'seeds = 1\ntrained_in = "bf16"'))
    experiment = load_experiment(str(file))
    ce, pc = (cell.training for cell in experiment.cells(epochs=1))
    plain = replace(pc, precision=None)
    assert len({training.hash for training in (ce, pc, plain)}) == 3
    first = warm_up_of(pc)
    assert first is not None
    assert first.precision == "bf16", "the phase that it begins with"
    store = Store(tmp_path / "store")
    about = {training: trained_model(store, training, EXECUTION).about for training in (pc, plain)}
    assert about[pc]["precision"] == "bf16"
    assert about[plain]["precision"] == "fp32", "on a CPU"
    assert store.is_trained(first)


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL.replace("seeds = 2", 'seeds = 1\ntrained_in = "fp8"'))
    with pytest.raises(ValueError, match=r"Expected `trained_in` of a group of small to be among .*, but got 'fp8'"):
        load_experiment(str(file))
