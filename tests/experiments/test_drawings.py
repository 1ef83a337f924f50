"""The figures of an experiment, and what becomes of its table where one cannot be drawn."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch
from made_results import content
from typer.testing import CliRunner

from pclc.analysis import confusion, gap_summary
from pclc.cli.app import app
from pclc.experiments.drawings import draw_figures
from pclc.experiments.experiment import Experiment, load_experiment
from pclc.experiments.store import Store

pytest.importorskip("matplotlib")

OWN = """
title = "One of ours"
[[groups]]
datasets = ["{dataset}"]
model = "cnn3"
seeds = 1
arms = [{{ column = "ce", loss = "ce" }}]
analyses = [{{ kind = "{kind}" }}]
"""


def finished(file: Path, result: object) -> tuple[Experiment, Store]:
    """The experiment of a file, with this result of the analysis in each of its cells."""
    experiment, store = load_experiment(str(file)), Store(file.parent / "store")
    for cell in experiment.cells():
        store.save(cell, content(cell, {"clean": 50.0}), {"analyses": [[asdict(result)]]})  # type: ignore[call-overload]
    return experiment, store


def test_networks_are_told_apart(tmp_path: Path) -> None:
    file, text = tmp_path / "two.toml", OWN.format(dataset="mnist", kind="gaps")
    file.write_text(text + text.replace('title = "One of ours"', "").replace("cnn3", "lenet5"))
    experiment, store = finished(file, gap_summary("clean", torch.eye(3), torch.arange(3)))
    (stem,) = draw_figures(store, "two", experiment.cells(), tmp_path)
    rows = Path(f"{stem}.csv").read_text()
    assert "mnist, cnn3, ce, seed 0" in rows
    assert "mnist, lenet5, ce, seed 0" in rows


def test_more_classes_than_a_figure_can_show_do_not_cost_the_table(tmp_path: Path) -> None:
    file = tmp_path / "many.toml"
    file.write_text(OWN.format(dataset="cifar100", kind="confusion"))
    labels = torch.arange(100)
    _, store = finished(file, confusion("clean", labels, labels, tuple(map(str, range(100)))))
    done = CliRunner().invoke(app, ["reproduce", str(file), "--out", str(store.path), "--device", "cpu"])
    assert done.exit_code == 0
    assert "the figures of many are not drawn: Expected at most 20 classes" in done.stderr
    assert "50.0 (1 seed)" in done.stdout
    assert (store.path / "tables/many.json").exists()
