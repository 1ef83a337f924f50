"""Models that are trained in another precision than the run's: other models, attacked as the others are."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from made_results import content
from small_grid import EXECUTION, SMALL

from pclc.experiments import trained
from pclc.experiments.costs import Cost, Known
from pclc.experiments.experiment import Cell, Training, load_experiment
from pclc.experiments.store import Store
from pclc.experiments.trained import trained_model, warm_up_of
from pclc.training import loop, paper_config


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


def test_a_killed_training_goes_on_in_its_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL.replace("seeds = 2", 'seeds = 1\ntrained_in = "bf16"'))
    training = load_experiment(str(file)).cells(epochs=1)[0].training
    training = replace(training, config=replace(training.config, warm_up_epochs=0))
    store, killed = Store(tmp_path / "store"), KeyboardInterrupt()

    def kill(*_: object) -> None:
        raise killed

    with monkeypatch.context() as patch:
        patch.setattr(trained, "train", partial(trained.train, checkpoint_seconds=0.0))
        patch.setattr(loop._Run, "_finish", kill)
        with pytest.raises(KeyboardInterrupt):
            trained_model(store, training, EXECUTION)
    before = store.epochs(training)
    assert before
    trained_model(store, training, EXECUTION)
    assert store.epochs(training) == before, "times included: nothing was done again"


def test_what_another_precision_costs_is_another_question() -> None:
    training = Training("digits", "lenet8", paper_config("digits"))
    done = content(Cell(training, "ce", "paper", "ce"), {"clean": 90.0})
    result = {**done, "cell": {"training": training.as_dict(), "analyses": []}}
    known = Known([result], "cpu")
    assert known.training(training, 100) == Cost(50.0)
    assert not known.training(replace(training, precision="tf32"), 100).measured


def test_a_column_is_one_kind_of_model(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    group = SMALL.split("[[groups]]")[1]
    file.write_text(SMALL + "[[groups]]" + group.replace("seeds = 2", 'seeds = 2\ntrained_in = "bf16"'))
    with pytest.raises(ValueError, match="the column 'ce' of small once for digits and lenet8, but got it again"):
        load_experiment(str(file))


def test_an_unknown_precision_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL.replace("seeds = 2", 'seeds = 1\ntrained_in = "fp8"'))
    with pytest.raises(ValueError, match=r"Expected `trained_in` of a group of small to be among .*, but got 'fp8'"):
        load_experiment(str(file))
