"""What the page on adversarial training says beside its figures: conditions, collapses, and what decides nothing."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from made_results import content, docs_folder, fill

from pclc.experiments.experiment import Cell, Experiment, load_experiment
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


def page_of(
    store: Store,
    cells: Sequence[Cell],
    tmp_path: Path,
    robust: Callable[[Cell], float] = lambda cell: 40.0 + 0.5 * cell.training.config.seed,
    study: Experiment = STUDY,
) -> str:
    """The page when these cells have these accuracies under AutoAttack."""
    fill(store, list(cells), lambda cell: {"clean": 80.0, "autoattack 8/255": robust(cell)})
    return written(store, tmp_path, study)


def written(store: Store, tmp_path: Path, study: Experiment = STUDY) -> str:
    page = adversarial_page(store, study, Selection(), docs_folder(tmp_path))
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
        "- cifar10, vgg13, 50 epochs: optimizer sgd, lr 0.8 or 0.4, schedule cosine, weight_decay 0.0005, "
        "batch_size 512, augmentation crop-flip, ema 0.999, validation 0.04, norm Linf, eps 8/255, alpha 2/255, "
        "steps 7, objective ce or kl."
    ) in conditions
    assert "- cifar10, vgg13, 30 epochs: optimizer sgd, lr 0.8," in conditions
    assert "alpha 10/255, steps 1, objective ce." in conditions
    assert "150 epochs" not in conditions, "these were not run"
    assert "- pgd 8/255: `pgd(eps=8/255, alpha=2/255, steps=20)`." in conditions


def test_arms_with_too_few_seeds_are_named(store: Store, tmp_path: Path) -> None:
    cells = [c for c in cells_of(store, [0, 1]) if c.column != "trades" or c.training.config.seed == 0]
    page = page_of(store, cells, tmp_path)
    assert (
        "- Not distinguishable from `ce`: `ce + pc`.\n- Not compared, with fewer than two seeds in common: `trades`.\n"
        in page
    )


def test_collapses_are_told_of_trainings_and_of_losing_settings(store: Store, tmp_path: Path) -> None:
    cells = cells_of(store, [0, 1])
    fast = [cell for cell in cells if cell.column == "fast"]
    write_curve(store, fast[0], [0.3, 0.41, 0.02, 0.3])
    write_curve(store, fast[1], [0.3, 0.41, 0.40])
    lost = Selection(columns=("fast",)).tuning_cells(STUDY)[0]
    write_curve(store, lost, [0.2, 0.35, 0.0])
    page = page_of(store, cells, tmp_path)
    assert "2 of 3 trainings did:\n\n" in page
    assert "- cifar10, vgg13, 30 epochs, `fast`, lr 0.8, seed 0: from 41.0 to 2.0\n" in page
    assert "- cifar10, vgg13, 30 epochs, `fast`, lr 0.2, seed 0: from 35.0 to 0.0\n" in page
    assert 'under `pgd(eps=8/255, alpha=2/255, steps=10, objective="margin")`, on at most 1,000' in page


def test_a_study_that_is_complete_has_its_pictures(store: Store, tmp_path: Path) -> None:
    """All arms of all groups, each with a mark of its own."""
    tried = Selection().tuning_cells(STUDY)
    fill(store, tried, lambda cell: {"clean": 70.0, "tuning": 40.0})
    cells = cells_of(store, [0])
    for cell in cells:
        write_curve(store, cell, [0.3, 0.4])
    page = page_of(store, cells, tmp_path)
    assert "Arms " not in page.partition("### Not run")[2].partition("###")[0]
    for picture in ("tradeoff", "validation"):
        rows = (tmp_path / f"docs/images/adversarial-training/{picture}.csv").read_text()
        assert all(cell.column in rows for cell in cells)


def test_no_collapse_is_told_too(store: Store, tmp_path: Path) -> None:
    cells = cells_of(store, [0])
    write_curve(store, cells[0], [0.3, 0.41, 0.40])
    assert "0 of 1 training did.\n" in page_of(store, cells, tmp_path)


def test_metrics_that_cannot_be_read_are_a_curve_that_is_not_kept(store: Store, tmp_path: Path) -> None:
    cells = cells_of(store, [0])
    write_curve(store, cells[0], [0.3, 0.41, 0.40])
    (store.model_folder(cells[0].training) / "metrics.jsonl").write_text('{"epoch": 1, "valid\n')
    page = page_of(store, cells, tmp_path)
    assert f"- Held-out accuracy over epochs was not kept for {len(cells)} of {len(cells)} models.\n" in page


def test_the_page_begins_with_what_came_out(store: Store, tmp_path: Path) -> None:
    """Also where that is not in favour of PC, and with what it was not compared with."""
    page = page_of(store, cells_of(store, range(5)), tmp_path, lambda cell: 42.0 if cell.column == "ce + pc" else 43.0)
    assert page.index("**In short**") < page.index("## How to use it")
    (line,) = (text for text in page.splitlines() if text.startswith("**In short**"))
    assert "(cifar10, vgg13, 50 epochs): `ce + pc` is below `ce`: -1.00 (-1.05 to -0.95), 5 seeds, clean +0.00" in line
    assert "; not compared with `ce + mae`: fewer than two seeds in common." in line
    assert line.endswith(" `trades + pc` is not run.")


def test_the_page_begins_with_what_pc_adds_to_trades_too(store: Store, tmp_path: Path) -> None:
    fill(store, Selection(columns=("trades + pc",)).tuning_cells(STUDY), lambda cell: {"clean": 70.0, "tuning": 40.0})
    robust = {"ce + pc": 43.0, "trades": 44.0, "trades + pc": 45.0}
    page = page_of(store, cells_of(store, range(3)), tmp_path, lambda cell: robust.get(cell.column, 42.0))
    (line,) = (text for text in page.splitlines() if text.startswith("**In short**"))
    assert "`trades + pc` is above `trades`: +1.00 (+0.9" in line
    assert "; above `ce + pc`: +2.00 (" in line


def test_what_is_not_known_is_said(store: Store, tmp_path: Path) -> None:
    short = [cell for cell in cells_of(store, [0, 1]) if cell.training.config.epochs == 50 and cell.column != "fast"]
    page = page_of(store, short, tmp_path)
    for question in (
        "**Whether the mean absolute error does as well as PC is not known**",
        "**What a smaller margin gives is not known**",
        "**Whether a lead over TRADES lasts in longer training is not known**",
        "**What PC gives at the cheap end is not known**",
    ):
        assert question in page
    # Of 45 + 12 + 10 + 3 models: three arms with two seeds and with each network.
    assert "**12 of the 70 models of the study are finished" in page
    assert "arms go before seeds, and seeds before test images" in page
    assert "- cifar10, preact_resnet18, 150 epochs: `trades` (seeds 0), `ce + pc` (seeds 0).\n" in page
    assert "- Not planned with preact_resnet18, 50 epochs: `ce, label smoothing`, `mart`, `clean share + pc`," in page
    assert "- Held-out accuracy over epochs was not kept for 12 of 12 models.\n" in page
    assert "| mart |" not in page, "settings of arms of which nothing was run are not listed"


def test_an_arm_with_a_setting_missing_is_told_from_one_that_was_not_begun(store: Store, tmp_path: Path) -> None:
    some = Selection(columns=("mart",)).tuning_cells(STUDY)[:2]
    fill(store, some, lambda cell: {"clean": 70.0, "tuning": 40.0})
    page = page_of(store, cells_of(store, [0, 1]), tmp_path)
    assert "- Arms not run at all: `ce, label smoothing`, `clean share + pc`, `trades + pc`," in page
    assert "- Arms without a chosen setting, since not all were tried: `mart`.\n" in page
    assert "| mart | beta 2.5, lr 0.4 | not run | not run | - |  |" in page


def lead_of_pc(leads: dict[int, float]) -> Callable[[Cell], float]:
    """By the length of training."""
    return lambda cell: 43.0 + (leads.get(cell.training.config.epochs, 0.0) if cell.column == "ce + pc" else 0.0)


@pytest.mark.parametrize(
    ("before", "after", "sentence"),
    [
        (1.0, 1.0, "3 seeds; with preact_resnet18, 150 epochs +1.00 (1 seed). Whether it lasts is open"),
        (-1.0, 1.0, "3 seeds; with preact_resnet18, 150 epochs +1.00 (1 seed). No lead was shown that could last."),
    ],
)
def test_longer_training(store: Store, tmp_path: Path, before: float, after: float, sentence: str) -> None:
    assert sentence in page_of(store, cells_of(store, range(5)), tmp_path, lead_of_pc({50: before, 150: after}))


@pytest.mark.parametrize(
    ("after", "sentence"),
    [
        (1.0, "The lead lasts."),
        (0.0, "The lead is no longer distinguishable from none."),
        (-1.0, "The lead is lost."),
    ],
)
def test_a_lead_with_seeds_at_both_lengths(store: Store, tmp_path: Path, after: float, sentence: str) -> None:
    longer = replace(STUDY, groups=tuple(replace(group, seeds=(0, 1, 2)) for group in STUDY.groups))
    cells = longer.cells(choices=choose(store, longer.tuning_cells()))
    assert sentence in page_of(store, cells, tmp_path, lead_of_pc({50: 1.0, 150: after}), longer)


def test_costs_stand_beside_the_cheap_end(store: Store, tmp_path: Path) -> None:
    fill(store, Selection(columns=("pc-fast",)).tuning_cells(STUDY), lambda cell: {"clean": 70.0, "tuning": 40.0})
    cells = cells_of(store, [0, 1])
    for cell in cells:
        made = content(cell, {"clean": 80.0, "autoattack 8/255": 41.0 if cell.column == "pc-fast" else 40.0})
        made["training"]["seconds"] = 11.5 + cell.training.config.seed + (cell.column == "pc-fast")
        store.save(cell, made, {"analyses": []})
    page = written(store, tmp_path)
    assert "**At the cheap end**: `pc-fast` is above `fast`: +1.00" in page
    assert "A training took 13.0 s (`pc-fast`) and 12.0 s (`fast`) on average." in page
    assert "| 13 s | not refuted (1 of 1), 1 of 2 seeds not audited |" in page


def test_audits_cast_their_doubt_on_what_is_said(store: Store, tmp_path: Path) -> None:
    study = replace(STUDY, groups=tuple(replace(group, audited=2) for group in STUDY.groups))
    cells = study.cells(columns=("ce", "ce + pc"), seeds=range(3), choices=choose(store, study.tuning_cells()))
    for cell in cells:
        made = content(cell, {"clean": 80.0, "autoattack 8/255": 42.0 if cell.column == "ce + pc" else 40.0})
        if cell.column == "ce + pc" and cell.training.model == "vgg13" and cell.training.config.seed == 1:
            made["audit"] |= {"verdict": "refuted", "reason": "Most of it is not there."}
        store.save(cell, made, {"analyses": []})
    page = written(store, tmp_path, study)
    doubt = "Audits of `ce + pc` refuted a claim or could not judge one ([Audits](#audits))."
    assert doubt in page.partition("## How to use it")[0]
    assert doubt in page.partition("### What it says")[2].partition("###")[0]
    assert "| not refuted (1 of 2), refuted (1 of 2), 1 of 3 seeds not audited |" in page
    doubts = page.partition("### Audits")[2].partition("###")[0]
    assert doubts.endswith("\n\n- vgg13, 50 epochs, `ce + pc`, seed 1: refuted. Most of it is not there.\n\n")


def test_without_the_seed_that_is_audited_nothing_is_said_of_claims(store: Store, tmp_path: Path) -> None:
    page = page_of(store, [cell for cell in cells_of(store, [1]) if cell.training.model == "vgg13"], tmp_path)
    audits = page.partition("### Audits")[2].partition("###")[0]
    assert "0 of 4 finished models were audited. A verdict" in audits
    assert "refuted" not in page


def test_where_settings_were_chosen(store: Store, tmp_path: Path) -> None:
    page = page_of(store, cells_of(store, [0, 1]), tmp_path)
    assert "on held-out images (vgg13, 50 epochs, seed 0; vgg13, 30 epochs, seed 0), and used for all other" in page
    assert "For `ce`, `fast` the learning rate alone was tuned, for the others also a number in their loss." in page


def test_a_seed_that_lies_far_from_the_others_is_told(store: Store, tmp_path: Path) -> None:
    """A mean and a deviation hide that one training of several came to nothing."""
    lost = {("ce + pc", 2): 10.0}
    cells = [cell for cell in cells_of(store, range(3)) if cell.training.model == "vgg13"]
    page = page_of(store, cells, tmp_path, lambda cell: lost.get((cell.column, cell.training.config.seed), 45.0))
    assert "\n- `ce + pc`: seeds far apart (autoattack 8/255: 45.0, 45.0, 10.0).\n" in page
    assert page.count("seeds far apart") == 1


def test_of_an_arm_that_was_not_tried_nothing_is_said_to_be_tuned(tmp_path: Path) -> None:
    store, arms = Store(tmp_path / "store"), ("ce", "ce + pc", "ce + mae")
    fill(store, Selection(columns=arms).tuning_cells(STUDY), lambda cell: {"clean": 70.0, "tuning": 40.0})
    page = page_of(store, cells_of(store, [0, 1]), tmp_path)
    assert "For `ce` the learning rate alone was tuned, for the others also a number in their loss." in page
