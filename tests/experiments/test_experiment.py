"""Experiments as data: complete, strict, and with hashes that mean what they say."""

import copy
import re
import tomllib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_grid import SMALL

from pclc.experiments.experiment import Cell, experiment_names, load_experiment, parse_experiment
from pclc.experiments.groups import Analysis, NamedAttack
from pclc.experiments.published import TABLES, load_published
from pclc.experiments.toml import read_toml
from pclc.experiments.values import Selection

NAMES = [
    "adversarial",
    "augmentation",
    "dropout",
    "figure1",
    "figure2",
    "figure3",
    "gaps",
    "masking",
    "learning-rate",
    "cw-space",
    "precision",
    "schedules",
    "spsa-steps",
    "table1",
    "table2",
    "table3",
    "table4",
    "table5",
]


def test_names() -> None:
    assert set(NAMES) <= set(experiment_names())
    with pytest.raises(ValueError, match=r"Expected `name` to be one of adversarial, .* Did you mean 'table1'\?"):
        load_experiment("tabel1")


@pytest.mark.parametrize("table", TABLES)
def test_every_published_figure_has_its_cell_and_the_network_of_the_paper(table: str) -> None:
    experiment = load_experiment(table)
    found = {
        (figure.dataset, figure.column, figure.row, figure.model == cell.training.model)
        for cell in experiment.cells(seeds=[0])
        for row in ["clean", *(attack.name for attack in cell.attacks)]
        if (figure := experiment.figure(cell, row))
    }
    assert found == {(figure.dataset, figure.column, figure.row, True) for figure in load_published(table)}


@pytest.mark.parametrize("table", TABLES[:5])
def test_the_columns_that_the_paper_does_not_have(table: str) -> None:
    for cell in load_experiment(table).cells(seeds=[0]):
        eps = {attack.attack.eps for attack in cell.attacks if hasattr(attack.attack, "eps")}  # type: ignore[attr-defined]
        standard = {attack.attack.eps for attack in cell.attacks if attack.text.startswith("autoattack")}  # type: ignore[attr-defined]
        assert standard == eps
        assert 8 / 255 in standard


def test_table1_is_what_the_paper_states() -> None:
    experiment = load_experiment("table1")
    cells = experiment.cells()
    assert len(cells) == 3 * 2 * 5 + 2 * 2 * 3
    attacks = {attack.name: attack.attack for attack in cells[0].attacks}
    assert str(attacks["pgd 0.3"]) == 'pgd(eps=0.3, alpha=0.01, steps=40, stop="never")'
    assert str(attacks["bim 0.3"]) == 'bim(eps=0.3, alpha=0.03, steps=10, stop="never")'
    assert str(attacks["mim 0.1"]) == 'mim(eps=0.1, alpha=0.01, steps=40, stop="never")'
    assert str(attacks["cw 0.0"]) == 'cw(lr=0.001, steps=100, space="pixel", nearest=False, stop="never")'
    configs = {cell.training.dataset: cell.training.config for cell in cells}
    assert (configs["mnist"].warm_up_epochs, configs["mnist"].epochs) == (50, 50)
    assert (configs["svhn"].warm_up_epochs, configs["svhn"].epochs) == (150, 150)
    assert {(config.lr, config.batch_size, config.optimizer) for config in configs.values()} == {(0.01, 256, "adam")}
    assert {(config.margin, config.logit_weight) for config in configs.values()} == {(0.995, 0.05)}


def test_substitutes_and_adversarial_training() -> None:
    black_box = load_experiment("table3").cells(seeds=[4])
    substitutes = {cell.training.model: cell.substitute for cell in black_box}
    assert {name: substitute and substitute.model for name, substitute in substitutes.items()} == {
        "lenet5": "cnn3",
        "vgg13": "resnet56",
    }
    assert all(cell.substitute and cell.substitute.config.loss == "ce" for cell in black_box)
    assert all(cell.substitute and cell.substitute.config.seed == 4 for cell in black_box)
    assert {attack.name.split()[0] for attack in black_box[0].attacks if attack.transfer} == {"pgd", "mim"}
    trained = {(cell.training.dataset, cell.column): cell for cell in load_experiment("table5").cells(seeds=[0])}
    grey = trained["mnist", "ce+at"].training.config.adversarial
    colour = trained["cifar10", "pc-lc+at"].training.config.adversarial
    assert grey is not None
    assert colour is not None
    assert (grey.method, grey.eps, grey.steps, grey.random_start) == ("mix", (0.1, 0.3), 1, False)
    assert (colour.method, colour.eps, colour.steps) == ("mix", (0.0, 0.1), 5)
    assert trained["mnist", "pc-lc"].training.config.adversarial is None


def test_choosing_cells() -> None:
    experiment = load_experiment("figure3")
    assert len(experiment.cells()) == 10
    assert [cell.training.config.seed for cell in experiment.cells(columns=["ce"], seeds=[3, 7])] == [3, 7]
    for arguments, sentence in (
        ({"datasets": ["svhn"]}, "Expected `datasets` to be among those of figure3 (mnist), but got 'svhn'."),
        ({"columns": ["gce"]}, "Expected `columns` to be among those of figure3 (ce, pc-lc), but got 'gce'."),
        ({"variant": "ours"}, "Expected `variant` to be one of paper, authors, but got 'ours'."),
    ):
        with pytest.raises(ValueError, match=re.escape(sentence)):
            experiment.cells(**arguments)  # type: ignore[arg-type]


def test_the_authors_variant_changes_pc_lc_alone() -> None:
    experiment = load_experiment("figure3")
    for paper, authors in zip(experiment.cells(), experiment.cells(variant="authors"), strict=True):
        assert authors.column == paper.column
        if paper.column == "pc-lc":
            assert authors.training.config == replace(paper.training.config, loss="pc-lc-authors")
            assert authors.hash != paper.hash
        else:
            assert authors.hash == paper.hash


def test_hashes_stay() -> None:
    """Results are kept under these names: a change here throws them away, and has to be meant."""
    cell = load_experiment("figure3").cells(columns=["pc-lc"], seeds=[0])[0]
    assert (cell.training.hash, cell.hash) == ("45343069df3ef7a2", "f89b143895af451b")


def test_a_hash_covers_what_decides_the_result_and_no_name() -> None:
    cell = load_experiment("masking").cells(datasets=["mnist"], seeds=[0])[0]
    first, second, *rest = cell.attacks
    assert cell.substitute is not None
    changed: list[Cell] = [
        replace(cell, attacks=(second, *rest)),
        replace(cell, attacks=(replace(first, text='fgsm(eps=0.11, stop="never")'), second, *rest)),
        replace(cell, attacks=(replace(first, transfer=True), second, *rest)),
        replace(cell, substitute=replace(cell.substitute, model="lenet5")),
        replace(cell, training=replace(cell.training, model="cnn3")),
        replace(cell, training=replace(cell.training, dataset="kmnist")),
        replace(cell, training=replace(cell.training, config=replace(cell.training.config, seed=1))),
        replace(cell, examples=100),
        replace(cell, split="validation"),
        replace(cell, precision="fp32"),
        replace(cell, analyses=(Analysis("gaps"),)),
        replace(cell, analyses=(Analysis("gaps", examples=10),)),
        replace(cell, analyses=(Analysis("gaps", (NamedAttack("x", "fgsm(eps=0.1)"),)),)),
    ]
    assert len({cell.hash, *(other.hash for other in changed)}) == 1 + len(changed)
    same = [
        replace(cell, attacks=(second, first, *rest)),
        replace(cell, attacks=(replace(first, name="another name"), second, *rest)),
        replace(cell, column="x", published_column="y", variant="authors", setting=2),
    ]
    assert {other.hash for other in same} == {cell.hash}


def test_cells_are_distinct_and_trainings_are_shared() -> None:
    tables = {name: load_experiment(name).cells() for name in ("table1", "table3", "table5")}
    for cells in tables.values():
        assert len({cell.hash for cell in cells}) == len(cells)
    trainings = {name: {cell.training.hash for cell in cells} for name, cells in tables.items()}
    assert trainings["table1"] == trainings["table3"]
    assert trainings["table1"] & trainings["table5"]


def content() -> dict[str, Any]:
    return tomllib.loads(
        """
        title = "A small one"
        published = "table1"
        [[groups]]
        datasets = ["mnist"]
        model = "lenet5"
        seeds = 2
        eps = [0.1, 0.2]
        arms = [{ column = "ce", loss = "ce" }]
        [groups.attacks]
        "fgsm {eps}" = 'fgsm(eps={eps}, stop="never")'
        [groups.extra]
        "spsa 0.3" = 'spsa(eps=0.3, steps=10)'
        """
    )


@pytest.mark.filterwarnings("error")  # a budget that cannot reach eps is meant here, and not warned of
def test_the_learning_rate_is_one_of_the_schedules() -> None:
    rate, schedules = (load_experiment(name).cells(seeds=[0]) for name in ("learning-rate", "schedules"))
    assert rate[0].training in [cell.training for cell in schedules]
    assert [cell.training.config.lr for cell in rate] == [0.001, 0.001]


def test_a_file_that_has_changed_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    for seeds in (2, 3):
        file.write_text(SMALL.replace("seeds = 2", f"seeds = {seeds}"))
        assert load_experiment(str(file)).groups[0].seeds == tuple(range(seeds))


def test_a_small_experiment() -> None:
    experiment = parse_experiment("small", content())
    first, second = experiment.cells()
    assert [attack.name for attack in first.attacks] == ["fgsm 0.1", "fgsm 0.2", "spsa 0.3"]
    assert second.training.config.seed == 1
    figure = experiment.figure(first, "fgsm 0.2")
    assert figure is not None
    assert figure.value == 51.6
    assert experiment.figure(first, "spsa 0.3") is None


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (["groups", 0, "sedes"], 3, "Expected the keys of a group of small to be among datasets, model, seeds, arms"),
        (["groups", 0, "seeds"], 0, "Expected `seeds` of a group of small to be at least 1, but got 0."),
        (["groups", 0, "seeds"], True, "Expected `seeds` of a group of small to be of type int, but got True."),
        (["groups", 0, "datasets"], ["mnits"], "Expected `datasets` of a group of small to be among digits, mnist"),
        (["groups", 0, "model"], "lenet", "Expected `model` of a group of small to be among"),
        (["groups", 0, "precision"], "float32", "Expected `precision` of a group of small to be among fp32"),
        (["groups", 0, "substitute"], "cnn3", "to have `transfer` and `substitute` together"),
        (
            ["groups", 0, "attacks", "pgd 0.1"],
            "pgdd(eps=0.1)",
            "`pgd 0.1` of a group of small: Expected an attack among",
        ),
        (["groups", 0, "attacks", "pgd 0.1"], "pgd(eps=0.1)", "Expected `pgd` to have `alpha` and `steps`"),
        (["groups", 0, "attacks", "pgd 0.1"], 7, "Expected `pgd 0.1` of a group of small to be an attack in text form"),
        (["groups", 0, "attacks", "fgsm 0.15"], "fgsm(eps=0.15)", "Expected a row that is published for mnist, ce of"),
        (["groups", 0, "extra", "pgd 0.1"], "fgsm(eps=0.1)", "Expected `extra` to be what is not published for mnist"),
        (["groups", 0, "extra", "fgsm 0.1"], "fgsm(eps=0.1)", "Expected each row of a group of small once"),
        (["groups", 0, "arms", 0, "loss"], "cee", "Expected `loss` to be one of ce, gce"),
        (["groups", 0, "arms", 0, "adversarial"], "madri", "Expected a recipe of adversarial training (paper-grey"),
        (["groups", 0, "arms", 0, "train"], {"lr": -1}, "Expected `lr` to be greater than 0"),
        (["groups", 0, "arms", 0, "column"], "gce", "Expected a row that is published for mnist, gce of table1"),
        (
            ["groups", 0, "analyses"],
            [{"kind": "rank"}],
            "Expected `kind` of an analysis of a group of small to be",
        ),
        (["published"], "table9", "Expected `table` to be one of table1"),
        # What would be left out without a word, or be wrong only when everything is trained:
        (["groups"], [], "Expected `groups` of small to have at least one, but got none."),
        (["groups", 0, "datasets"], [], "Expected `datasets` of a group of small to name at least one, but got none."),
        (["groups", 0, "arms"], [], "Expected `arms` of a group of small to name at least one, but got none."),
        (["groups", 0, "eps"], [], "Expected `fgsm {eps}` of a group of small to have {eps} in its text, and a list"),
        (["groups", 0, "attacks", "fgsm {eps}"], "fgsm(eps=0.1)", "Expected `fgsm {eps}` of a group of small to have"),
        (
            ["groups", 0, "analyses"],
            [{"kind": "gaps", "examples": 0}],
            "Expected `examples` of an analysis of a group of small to be at least 1, but got 0.",
        ),
        (
            ["groups", 0, "analyses"],
            [{"kind": "ranks", "attacks": {"cw": "cw(steps=10)"}}],
            "Expected `attacks` of an analysis of a group of small to be attacks with an eps",
        ),
        (
            ["groups", 0, "analyses"],
            [{"kind": "ranks", "eps": [0.2, 0.1], "attacks": {"fgsm {eps}": "fgsm(eps={eps})"}}],
            "Expected `attacks` of an analysis of a group of small to have each kind in a row, with an ascending eps.",
        ),
        (  # Two grids of one kind, whose figures would go by the same names
            ["groups", 0, "analyses"],
            [{"kind": "ranks", "attacks": {"a": "fgsm(eps=0.1)", "b": "spsa(eps=0.1)", "c": "fgsm(eps=0.2)"}}],
            "Expected `attacks` of an analysis of a group of small to have each kind in a row, with an ascending eps.",
        ),
    ],
)
def test_refusals(path: list[Any], value: object, sentence: str) -> None:
    wrong = copy.deepcopy(content())
    place: Any = wrong
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_experiment("small", wrong)


def test_fewer_images_and_epochs_are_other_cells() -> None:
    experiment = load_experiment("table3")
    full = experiment.cells(["mnist"], ["ce"], [0])[0]
    short = experiment.cells(["mnist"], ["ce"], [0], examples=10, epochs=3)[0]
    assert short.examples == 10
    assert short.substitute is not None
    for training in (short.training, short.substitute):
        assert (training.config.warm_up_epochs, training.config.epochs) == (3, 3)
    assert short.hash != full.hash
    assert short.training.hash != full.training.hash
    longer = load_experiment("schedules").cells(seeds=[0], epochs=20)
    assert {cell.training.config.epochs for cell in longer} == {10, 20}, "what is shorter anyway stays as it is"
    for arguments in ({"examples": 0}, {"epochs": 0}):
        with pytest.raises(ValueError, match=r"to be at least 1, but got 0"):
            experiment.cells(**arguments)


def test_the_study_of_adversarial_training() -> None:
    experiment = load_experiment("adversarial")
    assert experiment.cells() == [], "settings are chosen first"
    tuning = experiment.tuning_cells()
    assert len({cell.hash for cell in tuning}) == len(tuning) == 33
    # Epochs, crafting steps and their size: of the arms, and of the cheap end.
    lengths = {(50, 7, 2 / 255): 27, (30, 1, 10 / 255): 6}
    found: Counter[tuple[int, int | None, float | None]] = Counter()
    for cell in tuning:
        config, recipe = cell.training.config, cell.training.config.adversarial
        assert recipe is not None
        assert recipe.eps == 8 / 255
        found[config.epochs, recipe.steps, recipe.alpha] += 1
        same = config.batch_size, config.optimizer, config.schedule, config.ema, config.augmentation, config.validation
        assert same == (512, "sgd", "cosine", 0.999, "crop-flip", 0.04)
    assert found == lengths
    recipes = {cell.column: cell.training.config.adversarial for cell in tuning}
    assert recipes["ce + mae"].margin == 1.0  # type: ignore[union-attr]
    assert recipes["trades + pc"].objective == "kl"  # type: ignore[union-attr]
    long = experiment.cells(choices={"trades": 1}, seeds=[0])[-1].training
    assert (long.model, long.config.epochs) == ("preact_resnet18", 150)
    assert long.config.adversarial is not None
    assert long.config.adversarial.beta == 6.0


def test_a_trial_with_more_images_than_are_held_out_takes_all_of_these() -> None:
    study = load_experiment("adversarial")
    assert study.tuning_cells(examples=5000) == study.tuning_cells()
    for cell in (study.tuning_cells(examples=2000)[0], *study.cells(choices={"ce": 0}, examples=5000)):
        assert cell.examples in (2000, 5000)


def test_fewer_seeds_leave_a_study_in_proportion() -> None:
    """Three seeds are not three long runs, which have one."""
    study = load_experiment("adversarial")
    cells = Selection(columns=("trades",), seeds=3).cells(study, {"trades": 0})
    found = Counter((cell.training.model, cell.training.config.epochs) for cell in cells)
    assert found == {("vgg13", 50): 3, ("preact_resnet18", 50): 3, ("preact_resnet18", 150): 1}
    more = Selection(("mnist",), columns=("ce",), seeds=7).cells(load_experiment("table1"))
    assert [cell.training.config.seed for cell in more] == list(range(7)), "of a table as many as are asked for"


def tuned() -> dict[str, Any]:
    return tomllib.loads(
        """
        title = "Tuned"
        tuning = "fgsm(eps=0.1)"
        baselines = ["a"]
        [[groups]]
        datasets = ["digits"]
        model = "lenet8"
        seeds = 1
        train = { epochs = 1, validation = 0.1 }
        [[groups.arms]]
        column = "a"
        loss = "ce"
        settings = [{ train = { lr = 0.1 } }, { train = { lr = 0.2 } }]
        [[groups.arms]]
        column = "b"
        loss = "ce"
        adversarial = "pc"
        settings = [{ recipe = { beta = 1.0 } }, { recipe = { beta = 2.0 } }]
        [[groups]]
        datasets = ["digits"]
        model = "lenet8"
        seeds = 1
        train = { epochs = 2 }
        arms = ["b"]
        """
    )


def test_an_arm_of_the_first_group_by_its_name() -> None:
    *_, first, last = parse_experiment("tuned", tuned()).cells(choices={"b": 1})
    assert [cell.training.config.epochs for cell in (first, last)] == [1, 2]
    assert {cell.training.config.adversarial and cell.training.config.adversarial.beta for cell in (first, last)} == {2}


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        (["groups", 0, "arms", 0, "settings"], [{}], "Expected the arms of tuned to have the same number of settings."),
        (["groups", 0, "arms", 0, "settings"], [{"lr": 1}, {}], "Expected the keys of a setting of an arm of a group"),
        (
            ["groups", 0, "arms", 0, "settings"],
            [{"recipe": {}}, {}],
            "Expected 'a' of tuned to have `adversarial` with",
        ),
        (["groups", 0, "arms", 1, "settings"], [{"recipe": {"beta": -1.0}}, {}], "Expected `beta` to be"),
        (["groups", 0, "train"], {"epochs": 1}, "Expected 'a' of tuned to hold out images: train.validation."),
        (["groups", 1, "arms"], ["c"], "Expected `arms` of a group of tuned to be among a, b, but got 'c'."),
        (["baselines"], ["c"], "Expected `baselines` of tuned to be among a, b, but got 'c'."),
        (["tuning"], "fgsmm(eps=0.1)", "Expected an attack among"),
    ],
)
def test_refusals_of_settings(path: list[Any], value: object, sentence: str) -> None:
    wrong = tuned()
    place: Any = wrong
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_experiment("tuned", wrong)


def test_settings_need_an_attack_to_choose_by() -> None:
    wrong = tuned()
    del wrong["tuning"]
    with pytest.raises(ValueError, match="Expected tuned to have `tuning` and arms with `settings` together"):
        parse_experiment("tuned", wrong)


def test_data_comes_with_the_package() -> None:
    for name in experiment_names():
        assert read_toml("definitions", name)["title"]


@pytest.mark.parametrize(
    ("train", "sentence"),
    [
        ("{ lrr = 0.1 }", r"`train` or `recipe` of `ce`: .*unexpected keyword argument 'lrr'"),
        ('{ lr = "x" }', r"`train` or `recipe` of `ce`: Expected `lr` to be an int or a float, but got 'x'"),
        ("{ lr = -1.0 }", r"`train` or `recipe` of `ce`: Expected `lr` to be greater than 0"),
        ("{ lr = = }", r"Expected .*own\.toml to be a TOML file, but got: .*line"),
    ],
)
def test_mistakes_in_a_file_of_ones_own_are_told_with_their_place(tmp_path: Path, train: str, sentence: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(SMALL.replace("seeds = 2", f"seeds = 2\ntrain = {train}"))
    with pytest.raises(ValueError, match=sentence):
        load_experiment(str(file)).cells()
