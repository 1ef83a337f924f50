"""Tables: published beside ours, with a verdict only where there can be one."""

import json
import re
from pathlib import Path

import pytest
from made_results import content, fill

from pclc.experiments.block import Block, Entry
from pclc.experiments.experiment import Cell, Experiment, load_experiment, parse_experiment
from pclc.experiments.store import Store
from pclc.experiments.table import Table, make_table
from pclc.experiments.values import Selection, choose, mean_figures

CE = {"clean": 99.0, "pgd 0.1": 49.0, "autoattack 0.1": 10.0}
PC = {"clean": 99.2, "pgd 0.1": 70.0, "autoattack 0.1": 20.0}


def near(cell: Cell) -> dict[str, float]:
    """About the same for every seed."""
    base = CE if cell.column == "ce" else PC
    return {row: value + 0.2 * cell.training.config.seed for row, value in base.items()}


def block(table: Table) -> Block:
    (found,) = table.blocks
    return found


def entry(table: Table, row: str, column: str) -> Entry:
    return next(e for e in block(table).entries if (e.row, e.column) == (row, column))


@pytest.fixture
def table1() -> Experiment:
    return load_experiment("table1")


def test_published_ours_and_verdict(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",), seeds=4)
    fill(store, selection.cells(table1), near)
    table = make_table(store, table1, selection, {})
    assert entry(table, "pgd 0.1", "ce").text() == "49.0 | 49.3 ± 0.3 | reproduced"
    assert entry(table, "pgd 0.1", "pc-lc").text() == "72.3 | 70.3 ± 0.3 | differs -2.0"
    assert entry(table, "pgd 0.2", "ce").text() == "3.3 | 0.0 ± 0.0 | differs -3.3"
    assert entry(table, "autoattack 0.1", "ce").text() == "10.3 ± 0.3", "the paper has no such row"
    assert entry(table, "worst case 0.1", "ce").text() == "0.5 ± 0.0"
    assert entry(table, "worst case of all", "ce").text() == "0.0 ± 0.0"
    assert block(table).seeds["ce"] == (0, 1, 2, 3)
    assert block(table).not_run["ce"] == (4,), "the experiment has five seeds"
    assert table.notes[0] == "mnist lenet5 ce seed 0: something was seen"
    assert table.conditions == (
        "1000 images; trained on cpu in bf16, attacked on cpu in fp32; torch 2, pclc 0, code 12345678",
    )


def test_without_autoattack_nothing_is_called_the_worst_case(tmp_path: Path) -> None:
    experiment, store, selection = load_experiment("precision"), Store(tmp_path), Selection(seeds=1)
    fill(store, selection.cells(experiment), near)
    rows = block(make_table(store, experiment, selection, {})).rows
    assert [row for row in rows if "worst" in row] == ["worst of these 0.1", "worst of these, all"]


def mine(attacks: dict[str, str], **group: object) -> Experiment:
    content = {"datasets": ["digits"], "model": "lenet8", "seeds": 1, "arms": [{"column": "ce", "loss": "ce"}]}
    return parse_experiment("mine", {"title": "Mine", "groups": [{**content, "attacks": attacks, **group}]})


def test_by_transfer_autoattack_decides_no_worst_case(tmp_path: Path) -> None:
    by_transfer = {"transfer": {"strong": "autoattack(eps=0.1)"}, "substitute": "lenet8"}
    experiment, store = mine({"pgd 0.1": "pgd(eps=0.1, alpha=0.01, steps=40)"}, **by_transfer), Store(tmp_path)
    fill(store, experiment.cells(), near)
    rows = block(make_table(store, experiment, Selection(), {})).rows
    assert [row for row in rows if "worst" in row] == ["worst of these 0.1", "worst of these, all"]


def test_gradients_of_autoattack_do_not_count_by_whatever_name(tmp_path: Path) -> None:
    """The made-up results have a quarter of zero gradients in the row of this name."""
    for text, counts in (("autoattack(eps=0.1)", False), ("mim(eps=0.1, alpha=0.01, steps=40)", True)):
        experiment, store = mine({"mim 0.1": text}), Store(tmp_path)
        fill(store, experiment.cells(), near)
        assert bool(block(make_table(store, experiment, Selection(), {})).zero_gradients) is counts


def test_a_column_in_one_line(tmp_path: Path) -> None:
    """Which of several schedules is nearest to the published column."""
    experiment, store = load_experiment("schedules"), Store(tmp_path)
    paper = {
        attack.name: experiment.figure(experiment.cells()[0], attack.name) for attack in experiment.cells()[0].attacks
    }
    exact = {"clean": 99.2, **{row: figure.value for row, figure in paper.items() if figure is not None}}
    off = {row: value + (2.0 if value < 50 else -2.0) for row, value in exact.items()}
    fill(store, experiment.cells(), lambda cell: exact if cell.column == "10 epochs" else off)
    found = block(make_table(store, experiment, Selection(), {}))
    assert found.summary("10 epochs") == "14 reproduced; 0.0 points off on average"
    assert found.summary("one phase, step") == "14 differs; 2.0 points off on average"
    assert block(make_table(Store(tmp_path / "empty"), experiment, Selection(), {})).summary("10 epochs") == ""


def test_a_figure_outside_an_interval_that_is_wide(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",))
    scattered = {"clean": 99.2, "pgd 0.1": 49.0, "pgd 0.2": 60.0, "bim 0.2": 4.5}
    fill(
        store,
        selection.cells(table1),
        lambda cell: (
            {row: value + 3.0 * (cell.training.config.seed - 2) * (value > 9) for row, value in scattered.items()}
            | {"clean": 99.2}
        ),
    )
    table = make_table(store, table1, selection, {})
    assert entry(table, "pgd 0.1", "ce").text() == "49.0 | 49.0 ± 4.7 | underpowered"
    assert entry(table, "pgd 0.2", "ce").text() == "3.3 | 60.0 ± 4.7 | underpowered, yet outside: +56.7"
    assert entry(table, "bim 0.2", "ce").text() == "4.5 | 4.5 ± 0.0 | reproduced"
    assert "2 underpowered (1 of them outside the interval)" in block(table).summary("ce")


def test_gradients_that_were_zero_stand_with_their_column(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",), seeds=2)
    fill(store, selection.cells(table1), near)
    table = make_table(store, table1, selection, {})
    assert block(table).about("ce").startswith("ce: seeds 0, 1; not run: 2, 3, 4; ")
    most = "; up to 25.0 % zero gradients, AutoAttack aside (mim 0.1, seed 0)"
    assert block(table).about("ce").endswith(most)
    assert not [note for note in table.notes if "gradients" in note], "not once for each attack and cell"


def test_rows_that_leave_just_the_images_without_a_gradient_are_named(tmp_path: Path, table1: Experiment) -> None:
    """The made-up results have a quarter of zero gradients under MIM at 0.1."""
    store, selection = Store(tmp_path), Selection(("mnist",), seeds=2)
    accuracies = {"ce": (25.0, 25.0), "pc-lc": (25.0, 24.9)}
    fill(
        store,
        selection.cells(table1),
        lambda cell: {"clean": 99.0, "mim 0.1": accuracies[cell.column][cell.training.config.seed]},
    )
    found = block(make_table(store, table1, selection, {}))
    left = "; just as many images as have no gradient survive mim (0.1)"
    assert found.about("ce").endswith(left)
    assert left not in found.about("pc-lc"), "not with every seed"


def test_a_bound_next_to_zero_shows_its_side(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",), seeds=2)
    fill(
        store,
        selection.cells(table1),
        lambda cell: {"clean": 99.0, "pgd 0.1": 50.4 if cell.column == "pc-lc" else 50.0},
    )
    contrasts = block(make_table(store, table1, selection, {})).contrasts
    text = next(contrast.text() for contrast in contrasts if contrast.row == "pgd 0.1")
    assert "(+0.03 to +0.8)" in text, "the interval is as wide as one image of a thousand makes it"


def test_conditions_stand_with_their_columns_where_they_differ(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",), seeds=1)
    ce, pc = selection.cells(table1)
    fill(store, [ce, pc], lambda _: {"clean": 99.0})
    same = make_table(store, table1, selection, {}).conditions
    assert len(same) == 1
    assert "(mnist" not in same[0]
    store.save(pc, {**content(pc, {"clean": 99.0}), "code": "87654321"}, {"analyses": []})
    one, other = make_table(store, table1, selection, {}).conditions
    assert one.endswith("code 12345678 (mnist, lenet5: ce)")
    assert other.endswith("code 87654321 (mnist, lenet5: pc-lc)")


def test_seeds_that_lie_far_apart_are_told_one_by_one(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",), ("ce", "pc-lc"), 3)
    far = {"ce": (90.0, 15.0, 97.0), "pc-lc": (60.0, 40.0, 50.0)}
    cells = selection.cells(table1)
    fill(store, cells, lambda cell: {"clean": 99.0, "pgd 0.1": far[cell.column][cell.training.config.seed]})
    found = block(make_table(store, table1, selection, {}))
    assert "; seeds far apart (pgd 0.1: 90.0, 15.0, 97.0)" in found.about("ce")
    assert "far apart" not in found.about("pc-lc")


def test_what_adversarial_training_came_to_stands_with_its_column(tmp_path: Path) -> None:
    experiment, store, selection = load_experiment("table5"), Store(tmp_path), Selection(("mnist",), ("ce+at",), 2)
    cells = selection.cells(experiment)
    fill(store, cells, lambda cell: {"clean": 99.0})
    assert "PGD-10" not in block(make_table(store, experiment, selection, {})).about("ce+at"), "not kept"
    for cell, name in zip(cells, ("train_robust_accuracy", "validation_robust_accuracy"), strict=True):
        file = store.model_folder(cell.training) / "metrics.jsonl"
        file.parent.mkdir(parents=True, exist_ok=True)
        last = 0.1 + cell.training.config.seed / 10
        epochs = [{"epoch": 1}, {"epoch": 2, name: 0.5}, {"epoch": 3, name: last}]
        file.write_text("".join(json.dumps(epoch) + "\n" for epoch in epochs))
    about = block(make_table(store, experiment, selection, {})).about("ce+at")
    assert "; % under PGD-10 in training, best/last epoch by seed: " in about
    assert about.endswith(" by seed: 50.0/10.0, 50.0/20.0")


def test_arguments_against_masking_are_held_against_cross_entropy_too(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",), seeds=1)
    left = {"pc-lc": {"fgsm 0.1": 50.0, "pgd 0.1": 40.0}, "ce": {"fgsm 0.1": 50.0, "pgd 0.1": 60.0}}
    fill(store, selection.cells(table1), lambda cell: {"clean": 99.0, **left[cell.column]})
    claims = {judged.claim.name.split(":")[0]: judged for judged in make_table(store, table1, selection, {}).claims}
    rival = claims["masking 1"].rival
    assert rival is not None
    assert (claims["masking 1"].ours.of - claims["masking 1"].ours.held, rival.of - rival.held) == (0, 1)
    assert claims["masking 1"].text().endswith(f"; for cross-entropy here {rival.held} of {rival.of}")
    assert claims["white-box gain"].rival is None, "which is about both"


def test_those_of_a_substitute_do_not_count(tmp_path: Path) -> None:
    experiment, store, selection = load_experiment("table3"), Store(tmp_path), Selection(("mnist",), seeds=1)
    fill(store, selection.cells(experiment), near)
    assert block(make_table(store, experiment, selection, {})).zero_gradients == {}


def test_what_to_know_about_a_published_figure(tmp_path: Path) -> None:
    experiment, store, selection = load_experiment("table2"), Store(tmp_path), Selection(("mnist",), seeds=2)
    fill(store, selection.cells(experiment), near)
    table = make_table(store, experiment, selection, {})
    assert re.match(r"\d+\.\d\* \| ", entry(table, "pgd 0.1", "gce").text()), "quoted from another paper"
    assert "*" not in entry(table, "pgd 0.1", "ce").text()
    assert any("Chen" in remark for remark in block(table).remarks)


def test_contrasts(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",))
    fill(store, selection.cells(table1), near)
    contrasts = {(c.row, c.column, c.baseline): c for c in block(make_table(store, table1, selection, {})).contrasts}
    assert {(column, baseline) for _, column, baseline in contrasts} == {("pc-lc", "ce")}
    assert contrasts["pgd 0.1", "pc-lc", "ce"].text() == "+23.3 | +21.0 ± 0.0 (+20.9 to +21.1) | differs -2.3"
    assert contrasts["autoattack 0.1", "pc-lc", "ce"].text() == "+10.0 ± 0.0 (+9.9 to +10.1)"


def test_seeds_that_were_not_run(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",))
    cells = selection.cells(table1)
    fill(store, [cells[0]], near)
    table = make_table(store, table1, selection, {})
    assert entry(table, "pgd 0.1", "ce").text() == "49.0 | 49.0 (1 seed) | underpowered"
    assert entry(table, "pgd 0.1", "pc-lc").text() == "72.3 | not run"
    assert block(table).not_run == {"ce": (1, 2, 3, 4), "pc-lc": (0, 1, 2, 3, 4)}
    assert {judged.ours.holds for judged in table.claims} == {None}
    assert all(": not run" in judged.text() for judged in table.claims)


def test_seeds_that_are_not_asked_for_or_not_planned_are_not_called_missing(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",), seeds=1)
    fill(store, [cell for cell in table1.cells(["mnist"]) if cell.training.config.seed < 4], near)
    assert block(make_table(store, table1, selection, {})).not_run == {"ce": (4,), "pc-lc": (4,)}
    figure1 = load_experiment("figure1")
    assert block(make_table(store, figure1, Selection(), {})).not_run["pc"] == (0,), "which has one seed"


def test_a_trial_is_labelled_and_not_judged(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",), examples=1000, epochs=2)
    assert not {cell.hash for cell in selection.cells(table1)} & {cell.hash for cell in table1.cells()}
    fill(store, selection.cells(table1), near)
    table = make_table(store, table1, selection, {})
    assert entry(table, "pgd 0.1", "ce").text() == "49.0 | 49.4 ± 0.3"
    assert all(e.verdict is None for e in block(table).entries)
    assert all(c.verdict is None for c in block(table).contrasts)
    assert "SUBSET: only the first 1000 test images, at most 2 epochs a phase" in table.title
    assert table.as_dict()["limits"] == "only the first 1000 test images, at most 2 epochs a phase"
    untouched = make_table(store, table1, Selection(("mnist",)), {})
    assert entry(untouched, "pgd 0.1", "ce").text() == "49.0 | not run"


def test_claims_see_the_rows_of_the_paper_alone(tmp_path: Path, table1: Experiment) -> None:
    store, selection = Store(tmp_path), Selection(("mnist",))
    # Our own rows say the opposite, and are not what the claim is about.
    better = {"clean": 99.0, **{a.name: 50.0 for a in table1.groups[0].attacks}}
    worse = {**better, **{a.name: 40.0 for a in table1.groups[0].attacks}}
    extra = {attack.name: 90.0 for attack in table1.groups[0].extra}
    fill(store, selection.cells(table1), lambda cell: better if cell.column == "pc-lc" else {**worse, **extra})
    claims = {judged.claim.name: judged for judged in make_table(store, table1, selection, {}).claims}
    gain = claims["white-box gain"]
    assert gain.ours.holds is True
    assert gain.ours.of == 13
    assert re.fullmatch(
        r"white-box gain: holds so far \(13 of 13 comparisons\); in the paper's own figures \d+ of 65", gain.text()
    )
    assert claims["masking 3b: nothing is left at a large eps"].ours.holds is False
    assert claims["masking 2: white-box attacks are stronger"].ours.holds is None, "Table 3 has not been run"


def test_a_claim_is_open_while_something_it_is_about_is_not_run(tmp_path: Path, table1: Experiment) -> None:
    store = Store(tmp_path)
    fill(store, table1.cells(), lambda cell: {"clean": 99.0})

    def texts() -> dict[str, str]:
        return {judged.claim.name: judged.text() for judged in make_table(store, table1, Selection(), {}).claims}

    assert texts()["clean accuracy is kept"].startswith("clean accuracy is kept: holds (5 of 5")
    for dataset, column in (("svhn", "pc-lc"), ("mnist", "ce")):
        (cell,) = table1.cells([dataset], [column], [2])
        (store.cell_folder(cell) / "result.json").unlink()
    assert texts()["clean accuracy is kept"].startswith("clean accuracy is kept: holds so far (5 of 5")
    grey = "masking 3b: nothing is left at a large eps"
    assert texts()[grey].startswith(f"{grey}: holds (9 of 9"), "it is about PC-LC on grey images"
    few = make_table(store, table1, Selection(("mnist",)), {}).claims
    assert next(judged for judged in few if judged.claim.name == grey).partial is False
    assert "masking 2: white-box attacks are stronger: not run;" in "".join(texts().values())


def test_a_claim_about_two_tables(tmp_path: Path, table1: Experiment) -> None:
    store, selection, table3 = Store(tmp_path), Selection(("mnist",), seeds=1), load_experiment("table3")
    fill(store, selection.cells(table1), near)
    fill(store, selection.cells(table3), near)
    for experiment in (table1, table3):
        claims = {judged.claim.name: judged for judged in make_table(store, experiment, selection, {}).claims}
        assert claims["masking 2: white-box attacks are stronger"].ours.of == 6


def test_gaps_are_what_the_paper_quotes(tmp_path: Path) -> None:
    experiment, store = load_experiment("gaps"), Store(tmp_path)
    selection = Selection(("cifar100",), ("ce",))
    for cell in selection.cells(experiment):
        gap = {
            "name": "clean",
            "examples": 9,
            "mean": 0.52,
            "standard_error": 0.1,
            "correct": 0.7,
            "mean_of_correct": 0.8,
        }
        attacked = {**gap, "name": cell.analyses[0].attacks[0].text, "mean": 0.1}
        store.save(cell, content(cell, {"clean": 70.0}), {"analyses": [[gap, attacked]]})
    table = make_table(store, experiment, selection, {})
    assert entry(table, "clean gap", "ce").text() == "0.527 | 0.520 ± 0.000 | differs -0.007"
    assert entry(table, "clean", "ce").text() == "70.0 ± 0.0"
    assert entry(table, "pgd 0.005 gap", "ce").text() == "0.100 ± 0.000"
    figures = mean_figures(store, experiment, selection.cells(experiment))
    assert figures == {("gaps", "cifar100", "ce", "clean"): pytest.approx(0.52)}


def test_schedules_have_no_contrasts(tmp_path: Path) -> None:
    experiment, store = load_experiment("schedules"), Store(tmp_path)
    fill(store, experiment.cells(), lambda cell: CE)
    assert not block(make_table(store, experiment, Selection(), {})).contrasts


def test_settings_are_chosen_on_held_out_images(tmp_path: Path) -> None:
    experiment, store, selection = load_experiment("adversarial"), Store(tmp_path), Selection(columns=("ce", "trades"))
    tuning = selection.tuning_cells(experiment)
    assert {cell.split for cell in tuning} == {"validation"}
    assert [cell.column for cell in tuning] == ["ce"] * 3 + ["trades"] * 3
    assert selection.cells(experiment, choose(store, tuning)) == []
    robust = dict(zip(tuning, (40.0, 42.0, 42.0, 44.0, 43.0), strict=False))
    for cell, value in robust.items():
        fill(store, [cell], lambda cell, value=value: {"clean": 75.0, "tuning": value})  # type: ignore[misc]
    choices = choose(store, tuning)
    assert choices == {"ce": 1}, "the first of equals; one of trades is not run"
    cells = selection.cells(experiment, choices)
    assert {cell.training.config.lr for cell in cells} == {0.4}
    assert [cell.training.model for cell in cells] == ["vgg13"] * 5 + ["preact_resnet18"] * 3
    assert cells[0].training == tuning[1].training, "the model that was chosen is not trained again"
    rows = make_table(store, experiment, selection, choices).tuning
    assert [row["chosen"] for row in rows] == [False, True, False] + [False] * 3
    assert [row["robust %"] for row in rows] == [40.0, 42.0, 42.0, 44.0, 43.0, None]


def test_long_runs_stand_for_themselves(tmp_path: Path) -> None:
    experiment, store = load_experiment("adversarial"), Store(tmp_path)
    choices = {cell.column: 0 for cell in experiment.tuning_cells()}
    fill(store, experiment.cells(choices=choices), lambda cell: {"clean": 80.0, "autoattack 8/255": 44.0})
    table = make_table(store, experiment, Selection(), choices)
    assert [(b.model, len(b.columns)) for b in table.blocks] == [
        ("vgg13, 50 epochs", 9),
        ("preact_resnet18, 50 epochs", 4),
        ("vgg13, 30 epochs", 2),
        ("preact_resnet18, 150 epochs", 3),
    ]
    pairs = {(c.column, c.baseline) for c in table.blocks[1].contrasts}
    assert ("ce + pc", "ce") in pairs
    assert ("ce + pc", "trades") in pairs
    assert ("ce", "trades") not in pairs, "trades - ce says it"
