"""What the page on adversarial training says beside its figures: conditions, collapses, and what decides nothing."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from made_results import docs_folder, fill

from pclc.experiments.experiment import Cell, load_experiment
from pclc.experiments.pages_adversarial import adversarial_page
from pclc.experiments.store import Store
from pclc.experiments.values import Selection, choose

pytest.importorskip("matplotlib")

STUDY = load_experiment("adversarial")
ARMS = ("ce", "trades", "ce + pc", "fast")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = Store(tmp_path / "store")
    tried = Selection(columns=ARMS).tuning_cells(STUDY)
    fill(store, tried, lambda cell: {"clean": 70.0, "tuning": 40.0 + (cell.setting or 0)})
    return store


def cells_of(store: Store, seeds: Sequence[int]) -> list[Cell]:
    cells = Selection().cells(STUDY, choose(store, Selection().tuning_cells(STUDY)))
    return [cell for cell in cells if cell.training.config.seed in seeds]


def page_of(store: Store, cells: list[Cell], tmp_path: Path) -> str:
    fill(store, cells, lambda cell: {"clean": 80.0, "autoattack 8/255": 40.0 + 0.5 * cell.training.config.seed})
    page = adversarial_page(store, STUDY, Selection(), docs_folder(tmp_path))
    assert page is not None
    return page


def write_curve(store: Store, cell: Cell, robust: Sequence[float]) -> None:
    folder = store.model_folder(cell.training)
    folder.mkdir(parents=True, exist_ok=True)
    lines = [{"epoch": epoch, "validation_robust_accuracy": value} for epoch, value in enumerate(robust, start=1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_conditions(store: Store, tmp_path: Path) -> None:
    cells = [cell for cell in cells_of(store, [0, 1]) if cell.training.config.epochs < 150]
    page = page_of(store, cells, tmp_path)
    conditions = page.partition("### Conditions")[2]
    assert (
        "- cifar10, vgg13, 50 epochs: optimizer sgd, lr 0.4 or 0.2, schedule cosine, weight_decay 0.0005, "
        "batch_size 512, augmentation crop-flip, ema 0.999, validation 0.04, norm Linf, eps 8/255, alpha 2/255, "
        "steps 7, objective ce or kl."
    ) in conditions
    assert "- cifar10, vgg13, 30 epochs: optimizer sgd, lr 0.4," in conditions
    assert "alpha 10/255, steps 1, objective ce." in conditions
    assert "150 epochs" not in conditions, "these were not run"
    assert "- pgd 8/255: `pgd(eps=8/255, alpha=2/255, steps=20)`." in conditions


def test_arms_with_too_few_seeds_are_named(store: Store, tmp_path: Path) -> None:
    cells = [c for c in cells_of(store, [0, 1]) if c.column != "trades" or c.training.config.seed == 0]
    page = page_of(store, cells, tmp_path)
    assert "- Not to be told from `ce`: `ce + pc`.\n- Fewer than two seeds in common with `ce`: `trades`.\n" in page


def test_collapses_are_told_of_trainings_and_of_losing_settings(store: Store, tmp_path: Path) -> None:
    cells = cells_of(store, [0, 1])
    fast = [cell for cell in cells if cell.column == "fast"]
    write_curve(store, fast[0], [0.3, 0.41, 0.02, 0.3])
    write_curve(store, fast[1], [0.3, 0.41, 0.40])
    lost = Selection(columns=("fast",)).tuning_cells(STUDY)[0]
    write_curve(store, lost, [0.2, 0.35, 0.0])
    page = page_of(store, cells, tmp_path)
    assert "It was seen in 2 of 3 trainings:\n\n" in page
    assert "- cifar10, vgg13, 30 epochs, `fast`, lr 0.4, seed 0: from 41.0 to 2.0\n" in page
    assert "- cifar10, vgg13, 30 epochs, `fast`, lr 0.1, seed 0: from 35.0 to 0.0\n" in page
    assert 'under `pgd(eps=8/255, alpha=2/255, steps=10, objective="margin")`, on at most 1,000' in page


def test_a_study_that_is_complete_has_its_pictures(store: Store, tmp_path: Path) -> None:
    """All arms of all groups, each with a mark of its own."""
    tried = Selection().tuning_cells(STUDY)
    fill(store, tried, lambda cell: {"clean": 70.0, "tuning": 40.0})
    cells = cells_of(store, [0])
    for cell in cells:
        write_curve(store, cell, [0.3, 0.4])
    page = page_of(store, cells, tmp_path)
    assert "Arms of which not all settings were tried" not in page
    for picture in ("tradeoff", "validation"):
        rows = (tmp_path / f"docs/images/adversarial-training/{picture}.csv").read_text()
        assert all(cell.column in rows for cell in cells)


def test_no_collapse_is_told_too(store: Store, tmp_path: Path) -> None:
    cells = cells_of(store, [0])
    write_curve(store, cells[0], [0.3, 0.41, 0.40])
    assert "It was seen in 0 of 1 training.\n" in page_of(store, cells, tmp_path)
