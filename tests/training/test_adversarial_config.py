"""Adversarial training as configuration: recipes, what None stands for, JSON, hashes that stay, and sentences."""

import json
import math
import tomllib
from dataclasses import replace

import pytest

from pclc.attacks import UnreachableWarning
from pclc.hashes import settings_hash
from pclc.training import (
    ADVERSARIAL_PRESETS,
    METHODS,
    AdversarialConfig,
    TrainConfig,
    adversarial_config,
    adversarial_preset,
    paper_config,
)
from pclc.training.config import Phase

PC = AdversarialConfig("pc")


def test_the_recipes_are_the_papers() -> None:
    recipes = {name: preset.resolved() for name, preset in ADVERSARIAL_PRESETS.items()}
    budgets = {
        name: (r.method, r.eps, r.alpha, r.steps, r.random_start, r.objective, r.beta) for name, r in recipes.items()
    }
    assert budgets == {
        "paper-grey": ("mix", (0.1, 0.3), 0.3, 1, False, "ce", None),
        "paper-cifar10": ("mix", (0.0, 0.1), 0.025, 5, True, "ce", None),
        "madry-mnist": ("madry", 0.3, 0.01, 40, True, "ce", None),
        "madry-cifar10": ("madry", 8 / 255, 2 / 255, 7, True, "ce", None),
        "trades": ("trades", 8 / 255, 2 / 255, 10, True, "kl", 6.0),
        "mart": ("mart", 8 / 255, 2 / 255, 10, True, "ce", 5.0),
        "fast": ("fast", 8 / 255, 10 / 255, 1, True, "ce", None),
        "pc": ("pc", 8 / 255, 2 / 255, 7, True, "ce", 10.0),
        "pc-fast": ("pc", 8 / 255, 10 / 255, 1, True, "ce", 10.0),
    }
    rest = {"margin": 0.995, "clean_share": 0.0, "kl_weight": 0.0, "logit_weight": 0.0}
    assert recipes["pc"].weights == recipes["pc-fast"].weights == {"beta": 10.0, **rest}
    assert [name for name, recipe in recipes.items() if recipe.clean] == [
        "paper-grey",
        "paper-cifar10",
        "trades",
        "mart",
    ]


def test_every_method_has_a_recipe() -> None:
    assert {preset.method for preset in ADVERSARIAL_PRESETS.values()} == set(METHODS)


@pytest.mark.parametrize(
    ("config", "alpha", "steps"),
    [
        (AdversarialConfig("madry", eps=0.2), 0.05, 10),
        (AdversarialConfig("madry", eps=0.2, steps=1, random_start=False), 0.2, 1),
        (AdversarialConfig("madry", eps=0.2, steps=2), 0.1, 2),
        (AdversarialConfig("fast", eps=0.2), 0.25, 1),
        (AdversarialConfig("mix", eps=(0.0, 0.4)), 0.1, 10),
        (AdversarialConfig("pc", eps=0.2), 0.05, 7),
        (AdversarialConfig("pc", eps=0.2, steps=1), 0.25, 1),
        (AdversarialConfig("pc", eps=0.2, steps=1, random_start=False), 0.2, 1),
        (AdversarialConfig("madry", eps=0.2, alpha=0.03), 0.03, 10),
    ],
)
def test_what_none_stands_for(config: AdversarialConfig, alpha: float, steps: int) -> None:
    resolved = config.resolved()
    assert (resolved.alpha, resolved.steps) == (pytest.approx(alpha), steps)
    assert resolved.resolved() == resolved
    run = TrainConfig(loss="ce", warm_up_epochs=0, adversarial=config)
    assert run.adversarial == resolved, "a run writes down every number"


@pytest.mark.parametrize("name", ADVERSARIAL_PRESETS)
@pytest.mark.parametrize("field", ["method", "eps", "steps", "norm"])
def test_a_recipes_own_value_said_once_more_changes_nothing(name: str, field: str) -> None:
    recipe = ADVERSARIAL_PRESETS[name]
    assert adversarial_preset(name, **{field: getattr(recipe, field)}).resolved() == recipe.resolved()


def test_changes_of_a_recipe_do_not_keep_numbers_that_belonged_to_the_old_one() -> None:
    assert adversarial_preset("madry-cifar10", eps=0.1).resolved().alpha == 0.025
    assert adversarial_preset("madry-cifar10", eps=0.1, alpha=0.05).alpha == 0.05
    changed = adversarial_preset("trades", method="madry").resolved()
    assert (changed.objective, changed.beta, changed.eps) == ("ce", None, 8 / 255)
    assert adversarial_preset("pc", method="trades").weights == {"beta": 6.0}
    assert adversarial_preset("pc-fast", eps=0.1).resolved().alpha == 0.125
    assert adversarial_preset("madry-cifar10", norm="L2", eps=0.5).resolved().alpha == 0.125
    with pytest.raises(ValueError, match="Expected `eps` with norm='L2', since that of 'trades' is for Linf"):
        adversarial_preset("trades", norm="L2")
    with pytest.raises(ValueError, match=r"a recipe of adversarial training \(paper-grey, .*\), but got 'pgd'"):
        adversarial_preset("pgd")


@pytest.mark.parametrize("preset", ADVERSARIAL_PRESETS.values(), ids=ADVERSARIAL_PRESETS)
def test_json_and_back(preset: AdversarialConfig) -> None:
    assert AdversarialConfig.from_dict(json.loads(json.dumps(preset.as_dict()))) == preset
    config = TrainConfig(
        loss="ce", warm_up_epochs=0, adversarial=preset, ema=0.99, optimizer="sgd", momentum=0.8, schedule="cosine"
    )
    assert TrainConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
    with pytest.raises(ValueError, match="only fields of AdversarialConfig, but got epsilon"):
        AdversarialConfig.from_dict({"epsilon": 0.1})


def test_runs_without_the_new_settings_keep_their_hash() -> None:
    """The hash that version 0.1 wrote before there was adversarial training."""
    config = TrainConfig(loss="pc-lc", warm_up_epochs=2, epochs=2)
    new = {"adversarial", "ema", "optimizer", "schedule", "momentum", "warm_up_share"}
    assert not new & set(config.as_dict())
    assert settings_hash(config.as_dict()) == "49f103de19c4e7fb"
    for change in (
        {"label_smoothing": 0.1},
        {"ema": 0.9},
        {"optimizer": "sgd"},
        {"schedule": "cosine"},
        {"adversarial": AdversarialConfig()},
    ):
        changed = replace(config, **change)
        assert set(changed.as_dict()) == set(config.as_dict()) | set(change)


@pytest.mark.parametrize(
    ("recipe", "written"),
    [
        (AdversarialConfig("trades", eps=8 / 255), "94379cbc2b891b86"),
        (AdversarialConfig("mix", eps=(0.1, 0.3), steps=1, random_start=False), "d8cdcac168862107"),
    ],
    ids=["trades", "mix"],
)
def test_adversarial_runs_from_before_pc_keep_their_hash(recipe: AdversarialConfig, written: str) -> None:
    """The hash that version 0.1 wrote before method "pc" brought its numbers."""
    config = TrainConfig(loss="ce", warm_up_epochs=0, epochs=2, ema=0.999, adversarial=recipe)
    assert settings_hash(config.as_dict()) == written


def test_a_configuration_from_toml() -> None:
    """TOML has no null, and whole numbers where Python would have written 10.0."""
    text = """
        loss = "ce"
        warm_up_epochs = 0
        label_smoothing = 0.1
        [adversarial]
        method = "pc"
        eps = 0.03
        beta = 10
        clean_share = 0.5
    """
    recipe = AdversarialConfig("pc", eps=0.03, beta=10.0, clean_share=0.5)
    config = TrainConfig(loss="ce", warm_up_epochs=0, label_smoothing=0.1, adversarial=recipe)
    assert TrainConfig.from_dict(tomllib.loads(text)) == config
    content = config.as_dict()
    assert None not in content["adversarial"].values()
    del content["adversarial"]
    assert None not in content.values()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "pgd"}, '`method` to be "mix" or "madry" or "trades" or "mart" or "fast" or "pc", but got'),
        ({"eps": 8}, r"`eps` to be at most 1 in Linf, .* Did you mean 8/255\?"),
        ({"eps": (0.3, 0.1)}, r"`eps` to be a number above 0, or \(low, high\) with low <= high, but got \(0.3, 0.1\)"),
        ({"eps": 0.0}, "`eps` to be a number above 0"),
        ({"eps": (0.1, 0.2, 0.3)}, r"`eps` to be a number or \(low, high\)"),
        ({"alpha": 0.0}, "`alpha` to be a finite number above 0"),
        ({"steps": 0}, "`steps` to be a whole number of at least 1"),
        ({"objective": "hinge"}, "`objective` to be one of"),
        ({"objective": "dlr-targeted"}, "to be used with targeted=True"),
        ({"method": "trades", "beta": -1}, "`beta` to be a finite number of at least 0"),
        (
            {"method": "madry", "beta": 6.0},
            '`beta` to be used with method "trades" or "mart" or "pc", but got 6.0 for "madry"',
        ),
        ({"method": "trades", "margin": 0.9}, '`margin` to be used with method "pc", but got 0.9 for "trades"'),
        ({"method": "mart", "clean_share": 0.5}, '`clean_share` to be used with method "pc"'),
        ({"method": "mix", "kl_weight": 0.5}, '`kl_weight` to be used with method "pc"'),
        ({"method": "fast", "logit_weight": 0.5}, '`logit_weight` to be used with method "pc"'),
        ({"method": "pc", "beta": "10"}, "`beta` to be a finite number of at least 0, but got '10'"),
        ({"method": "pc", "beta": -1.0}, "`beta` to be a finite number of at least 0"),
        ({"method": "pc", "margin": 0.0}, "`margin` to be a finite number above 0"),
        ({"method": "pc", "margin": 1.1}, r"`margin` to be in \(0, 1\], but got 1.1"),
        ({"method": "pc", "clean_share": 1.5}, r"`clean_share` to be in \[0, 1\], but got 1.5"),
        ({"method": "pc", "kl_weight": float("inf")}, "`kl_weight` to be a finite number of at least 0"),
        (
            {"method": "pc", "beta": 0, "logit_weight": 1.0},
            "`beta` to be above 0 where `logit_weight` is, but got beta=0",
        ),
        ({"method": "pc", "beta": 0, "clean_share": 1}, "`beta` or `kl_weight` to be above 0 with clean_share=1"),
        ({"method": "pc", "objective": "kl", "random_start": False}, "whose gradient is zero at the image itself"),
        ({"method": "fast", "steps": 3}, 'method "fast" to take 1 step from a random start, but got steps=3'),
        ({"method": "fast", "random_start": False}, 'method "fast" to take 1 step from a random start'),
        ({"method": "trades", "random_start": False}, "whose gradient is zero at the image itself"),
        ({"random_start": 1}, "`random_start` to be True or False"),
        ({"norm": "L1"}, '`norm` to be "Linf" or "L2"'),
        ({"validate_every": 0}, "`validate_every`"),
        ({"ramp_epochs": -1}, "`ramp_epochs` to be a whole number"),
    ],
)
def test_refusals(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        AdversarialConfig(**arguments)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"adversarial": "trades"}, "`adversarial` to be an AdversarialConfig or None, but got 'trades'"),
        ({"ema": 1.0}, r"`ema` to be in \[0, 1\)"),
        ({"optimizer": "lion"}, "`optimizer` to be adam or sgd, but got 'lion'"),
        ({"schedule": "linear"}, "`schedule` to be step or cosine"),
        ({"warm_up_share": 1.0}, "`warm_up_share`"),
        ({"optimizer": "sgd", "momentum": 1.0}, "`momentum`"),
        ({"momentum": 0.9}, 'optimizer="sgd" with a momentum, but got momentum=0.9 for "adam"'),
        ({"label_smoothing": 1.0}, r"`label_smoothing` to be in \[0, 1\), but got 1.0"),
        (
            {"label_smoothing": 0.1, "loss": "gce"},
            "`label_smoothing` to be used with cross-entropy, but got 0.1 for 'gce'",
        ),
        ({"label_smoothing": 0.1, "warm_up_epochs": 0}, "but got 0.1 for 'pc-lc'"),
        ({"adversarial": PC}, """`loss` to be 'ce' in adversarial training with method "pc", but got 'pc-lc'"""),
        ({"adversarial": PC, "loss": "ce"}, "`warm_up_epochs` to be 0 in adversarial training"),
        (
            {"adversarial": PC, "loss": "ce", "warm_up_epochs": 0, "margin": 0.5},
            '`margin` to be 0.995 in .* "pc", because PC takes it from `adversarial`, but got 0.5',
        ),
        (
            {"adversarial": PC, "loss": "ce", "warm_up_epochs": 0, "logit_weight": 0.0},
            '`logit_weight` to be 0.05 in .* "pc", because PC takes it from `adversarial`, but got 0.0',
        ),
    ],
)
def test_refusals_of_the_training_configuration(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**arguments)  # type: ignore[arg-type]


def test_steps_that_cannot_reach_the_ball_are_said_once_to_the_caller() -> None:
    with pytest.warns(UnreachableWarning, match="cannot reach eps=0.3") as said:
        TrainConfig(adversarial=AdversarialConfig("madry", eps=0.3, alpha=0.01, steps=10))
    assert [warning.filename for warning in said] == [__file__]


def test_cosine_rises_for_its_share_and_falls_to_zero() -> None:
    config = TrainConfig(schedule="cosine", lr=0.2, warm_up_epochs=0, epochs=10, warm_up_share=0.3)
    rates = [config.learning_rate(Phase(("ce",), 10), epoch) for epoch in range(10)]
    assert rates[:3] == pytest.approx([0.2 * share / 0.3 for share in (0.05, 0.15, 0.25)])
    assert rates[3:] == pytest.approx([0.1 * (1 + math.cos(math.pi * (0.05 + 0.1 * k) / 0.7)) for k in range(7)])
    assert TrainConfig(schedule="cosine", warm_up_share=0).learning_rate(Phase(("ce",), 2), 0) > 0.008


class TestConfigurationOfADataSet:
    def test_the_numbers_that_go_with_a_recipe(self) -> None:
        config = adversarial_config("cifar10", "pc")
        assert config == TrainConfig(
            loss="ce", warm_up_epochs=0, epochs=50, batch_size=512, lr=0.4, weight_decay=5e-4, augmentation="crop-flip",
            optimizer="sgd", schedule="cosine", warm_up_share=0.3, ema=0.999, adversarial=ADVERSARIAL_PRESETS["pc"],
        )  # fmt: skip
        assert config.phases == (Phase(("ce",), 50),)

    @pytest.mark.parametrize("name", [name for name in ADVERSARIAL_PRESETS if name != "pc"])
    def test_the_arms_of_a_comparison_differ_in_the_recipe_alone(self, name: str) -> None:
        ours, other = adversarial_config("cifar10", "pc"), adversarial_config("cifar10", name)
        if ADVERSARIAL_PRESETS[name].method == "mix":
            assert other == paper_config("cifar10", adversarial=ADVERSARIAL_PRESETS[name]), "the paper's own protocol"
        else:
            assert replace(other, adversarial=None) == replace(ours, adversarial=None)

    def test_changes(self) -> None:
        recipe = adversarial_preset("pc", beta=5.0)
        config = adversarial_config("digits", recipe, epochs=3, lr=0.1, seed=4, label_smoothing=0.1)
        assert config.adversarial == recipe.resolved()
        assert (config.epochs, config.lr, config.seed, config.batch_size) == (3, 0.1, 4, 128)

    def test_a_loss_that_begins_with_cross_entropy_keeps_that_phase(self) -> None:
        config = adversarial_config("mnist", "trades", loss="pc-lc", epochs=7)
        assert config.phases == (Phase(("ce",), 7), Phase(("pc-lc",), 7))
        assert adversarial_config("mnist", "trades", loss="pc-lc", warm_up_epochs=2).phases[0].epochs == 2

    def test_the_papers_recipe_has_both_phases_of_the_length_that_is_asked_for(self) -> None:
        assert [phase.epochs for phase in adversarial_config("mnist", "paper-grey", epochs=3).phases] == [3, 3]

    def test_another_optimizer_has_its_own_rate_and_decay(self) -> None:
        config = adversarial_config("cifar10", "pc", optimizer="adam")
        assert (config.lr, config.weight_decay, config.schedule) == (0.01, 0.0, "cosine")

    def test_a_data_set_without_preset(self) -> None:
        with pytest.raises(ValueError, match="a data set with a preset"):
            adversarial_config("imagenet", "pc")
