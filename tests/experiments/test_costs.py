"""What a grid will cost, before it runs."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from made_results import content
from small_grid import EXECUTION

from pclc.experiments.costs import Cost, Known, PlannedCell, known_here, plan_grid
from pclc.experiments.experiment import Cell, Training, load_experiment
from pclc.experiments.groups import AuditRequest, NamedAttack
from pclc.experiments.runner import GridSettings, grid_progress, run_grid
from pclc.experiments.store import DamagedWarning, Store
from pclc.training import adversarial_preset

Settings = Callable[..., GridSettings]


def planned(store: Store, cells: Sequence[Cell]) -> list[PlannedCell]:
    return plan_grid(store, cells, known_here(store, EXECUTION))


def test_progress_and_plan(cells: list[Cell], settings: Settings) -> None:
    store = Store(settings().store)
    before = planned(store, cells)
    assert [plan.finished for plan in before] == [False] * 4
    assert not any(plan.cost.measured for plan in before)
    epoch, attacks = 1437 * 3, 40 * 2 * (1 + 10 + 1)  # in passes
    ratio = (2 * epoch + attacks) / (epoch + attacks)
    counted_once = "the first phase of a seed, and the substitute, which is the model of ce"
    assert before[0].cost.seconds / before[2].cost.seconds == pytest.approx(ratio), counted_once
    both = planned(store, [cells[0], replace(cells[0], attacks=cells[0].attacks[:2]), cells[0]])
    assert [plan.cost.seconds for plan in both[1:]] == [0, 0], "what two experiments ask for runs once"
    assert grid_progress(store, before) == (0, 0.0, "")
    run_grid(cells[:1], settings())
    done, share, _ = grid_progress(store, before)
    assert done == 1
    assert 0.2 < share < 1
    again = planned(store, cells)
    assert [plan.finished for plan in again] == [True, False, False, False]
    assert [plan.cost.measured for plan in again] == [True] * 4
    assert again[0].cost.seconds == 0 < again[1].cost.seconds
    (fewer,) = planned(store, [replace(cells[0], attacks=cells[0].attacks[:2])])
    assert fewer.cost.seconds > 0
    kept = "with the weights what attacks have found is there"
    assert planned(store, [cells[0], fewer.cell])[1].cost.seconds == 0, kept


def finished(cell: Cell, device: str = "there", **attack: float) -> dict[str, Any]:
    """What a cell would give: 100 s for its training, and for each attack on 1,000 images what is said."""
    made = content(cell, {"clean": 90.0})
    made["training"] |= {"device": device, "seconds": 100.0}
    made["conditions"] |= {"device": device}
    made["attacks"] = [{**row, **attack} for row in made["attacks"]]
    return {**made, "cell": cell.as_dict()}


def test_what_an_attack_takes_is_known_of_models_of_its_kind(cells: list[Cell]) -> None:
    """Most images of a plainly trained model fall at once, which says nothing about a robust one."""
    plain, named = cells[0], cells[0].attacks[1]
    config = replace(plain.training.config, adversarial=adversarial_preset("paper-grey"))
    robust = replace(plain, training=replace(plain.training, config=config))
    done = finished(plain, seconds=2.0, forwards=6000, backwards=4000)
    known = Known([done], "there")
    assert known.attack(plain, named, 500) == Cost(1.0)
    a_pass = known.attack(robust, named, 1).seconds / 20
    assert known.attack(robust, named, 500) == Cost(pytest.approx(500 * 20 * a_pass), False), "all that it may make"
    # Where nothing was run yet, passes are known all the same.
    elsewhere = Known([done], "here", lambda training: 0.001)
    assert elsewhere.attack(plain, named, 500) == Cost(pytest.approx(500 * 10 * 0.001), False)
    assert elsewhere.attack(robust, named, 500) == Cost(pytest.approx(500 * 20 * 0.001), False)
    longer = replace(named, text='pgd(eps=0.1, alpha=0.02, steps=30, stop="never")')
    half = "as much of what it may make as its kind"
    assert elsewhere.attack(plain, longer, 500) == Cost(pytest.approx(500 * 30 * 0.001), False), half


def test_a_trial_says_little_of_the_real_thing(cells: list[Cell]) -> None:
    """Compiling takes as long for one epoch as for many; and a batch for one image as for many."""
    trial, named = finished(cells[0], seconds=2.0), cells[0].attacks[0]
    trial["training"] |= {"epochs": 1, "seconds": 1.0, "setup_seconds": 30.0}
    trial["n"] = 10
    assert Known([trial], "there").training(cells[0].training, 100) == Cost(130.0)
    both = Known([trial, finished(cells[0], seconds=8.0)], "there")
    assert both.attack(cells[0], named, 1010) == Cost(pytest.approx(10.0))


def test_a_training_costs_the_passes_of_its_step(cells: list[Cell]) -> None:
    """TRADES passes the clean images beside the adversarial ones, which Madry's with as many steps does not."""

    def training(recipe: str, **changes: Any) -> Training:
        config = replace(cells[0].training.config, adversarial=adversarial_preset(recipe, **changes))
        return replace(cells[0].training, config=config)

    madry = replace(cells[0], training=training("madry-cifar10"))
    slow = finished(madry, seconds=1e6, forwards=1, backwards=0)  # attacks, in another precision, say less
    known = Known([slow], "there")
    assert known.training(madry.training, 100) == Cost(100.0)
    trades = known.training(training("trades", steps=7), 100)
    assert trades == Cost(pytest.approx(100 * 20 / 17), False)


def test_a_network_that_was_not_run_is_estimated_by_what_its_layers_give() -> None:
    cell = load_experiment("table1").cells(datasets=["mnist"], seeds=[0])[0]
    known = Known([finished(cell)], "there")
    assert known.training(cell.training, 100) == Cost(100.0)
    larger = known.training(replace(cell.training, model="cnn3"), 100)
    assert not larger.measured
    assert 200 < larger.seconds < 1000, "four times as many values"


def test_a_network_of_another_version_stops_no_estimate() -> None:
    cell = load_experiment("table1").cells(datasets=["mnist"], seeds=[0])[0]
    counted = {"seconds": 2.0, "forwards": 6000, "backwards": 4000}
    old = finished(replace(cell, training=replace(cell.training, model="lenet4")), **counted)
    known, alone = (
        Known(results, "there") for results in ([old, finished(cell, **counted)], [finished(cell, **counted)])
    )
    other = replace(cell.training, model="cnn3")
    assert known.training(other, 100) == alone.training(other, 100)
    attack = cell.attacks[0]
    assert known.attack(replace(cell, training=other), attack, 500) == alone.attack(
        replace(cell, training=other), attack, 500
    )


def test_where_no_attack_was_counted_trainings_say_what_a_pass_takes(cells: list[Cell]) -> None:
    done = finished(replace(cells[0], attacks=()))
    a_pass = 100.0 / (100 * 1437 * 3)
    cost = Known([done], "there").attack(cells[0], cells[0].attacks[1], 500)
    assert cost == Cost(pytest.approx(500 * 20 * a_pass), False)


def test_an_audit_costs_more_than_autoattack_where_it_did(cells: list[Cell]) -> None:
    asked = replace(cells[0], audit=AuditRequest(0.1), attacks=(NamedAttack("aa", "autoattack(eps=0.1)"),))
    done = finished(asked, seconds=2.0, forwards=10_000, backwards=10_000)  # and the audit 4 s
    there = Known([done], "there")
    assert there.audit(asked) == Cost(pytest.approx(0.004 * 40))
    assert [plan.cost.seconds > 0 for plan in plan_grid(None, [asked, asked], there)] == [True, False], "once"
    here = Known([done], "here", lambda training: 0.001)
    assert here.audit(asked) == Cost(pytest.approx(2 * 0.001 * 20 * 40), False), "twice as much as AutoAttack"


def test_a_transfer_costs_what_crafting_on_its_substitute_costs(cells: list[Cell], settings: Settings) -> None:
    run_grid(cells[:1], settings())
    cell = cells[0]
    (named,) = (attack for attack in cell.attacks if attack.transfer)
    assert cell.substitute is not None
    known = Known(Store(settings().store).results(), "cpu", lambda training: {"cnn3": 2.0}[training.model])
    assert known.attack(cell, named, 40).measured
    other = replace(cell, substitute=replace(cell.substitute, model="cnn3"))
    assert known.attack(other, named, 40) == Cost(40 * 4 * 2.0, False), "of FGSM, as counted"
    assert known.attack(cell, replace(named, transfer=False), 40) != known.attack(cell, named, 40), "timed apart"


def test_a_result_with_another_name_in_it_stops_no_plan(cells: list[Cell], tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(cells[0], content(cells[0], {"clean": 50.0}), {})
    path = store.cell_folder(cells[0]) / "result.json"
    path.write_text(path.read_text().replace('"conditions"', '"conditiOns"'))
    with pytest.warns(DamagedWarning):
        assert [plan.finished for plan in planned(store, cells[:1])] == [False]
