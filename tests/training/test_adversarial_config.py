"""Adversarial training as configuration: recipes, what None stands for, JSON, hashes that stay, and sentences."""

import json
import math
from dataclasses import replace

import pytest

from pclc.attacks import UnreachableWarning
from pclc.training import ADVERSARIAL_PRESETS, METHODS, AdversarialConfig, TrainConfig, adversarial_preset
from pclc.training.config import Phase
from pclc.training.run_directory import config_hash


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
    }


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
        (AdversarialConfig("madry", eps=0.2, alpha=0.03), 0.03, 10),
    ],
)
def test_what_none_stands_for(config: AdversarialConfig, alpha: float, steps: int) -> None:
    resolved = config.resolved()
    assert (resolved.alpha, resolved.steps) == (pytest.approx(alpha), steps)
    assert resolved.resolved() == resolved
    assert TrainConfig(adversarial=config).adversarial == resolved, "a run writes down every number"


def test_changes_of_a_recipe_do_not_keep_numbers_that_belonged_to_the_old_one() -> None:
    assert adversarial_preset("madry-cifar10", eps=0.1).resolved().alpha == 0.025
    assert adversarial_preset("madry-cifar10", eps=0.1, alpha=0.05).alpha == 0.05
    changed = adversarial_preset("trades", method="madry").resolved()
    assert (changed.objective, changed.beta, changed.eps) == ("ce", None, 8 / 255)
    with pytest.raises(ValueError, match=r"a recipe of adversarial training \(paper-grey, .*\), but got 'pgd'"):
        adversarial_preset("pgd")


@pytest.mark.parametrize("preset", ADVERSARIAL_PRESETS.values(), ids=ADVERSARIAL_PRESETS)
def test_json_and_back(preset: AdversarialConfig) -> None:
    assert AdversarialConfig.from_dict(json.loads(json.dumps(preset.as_dict()))) == preset
    config = TrainConfig(adversarial=preset, ema=0.99, optimizer="sgd", momentum=0.8, schedule="cosine")
    assert TrainConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
    with pytest.raises(ValueError, match="fields of adversarial training, but got epsilon"):
        AdversarialConfig.from_dict({"epsilon": 0.1})


def test_runs_without_the_new_settings_keep_their_hash() -> None:
    """The hash that version 0.1 wrote before there was adversarial training."""
    config = TrainConfig(loss="pc-lc", warm_up_epochs=2, epochs=2)
    new = {"adversarial", "ema", "optimizer", "schedule", "momentum", "warm_up_share"}
    assert not new & set(config.as_dict())
    assert config_hash(config.as_dict()) == "49f103de19c4e7fb"
    for change in ({"ema": 0.9}, {"optimizer": "sgd"}, {"schedule": "cosine"}, {"adversarial": AdversarialConfig()}):
        changed = replace(config, **change)
        assert set(changed.as_dict()) == set(config.as_dict()) | set(change)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"method": "pgd"}, '`method` to be "mix" or "madry" or "trades" or "mart" or "fast", but got'),
        ({"eps": 8}, r"`eps` to be at most 1 in Linf, .* Did you mean 8/255\?"),
        ({"eps": (0.3, 0.1)}, r"`eps` to be a number above 0, or \(low, high\) with low <= high, but got \(0.3, 0.1\)"),
        ({"eps": 0.0}, "`eps` to be a number above 0"),
        ({"eps": (0.1, 0.2, 0.3)}, r"`eps` to be a number or \(low, high\)"),
        ({"alpha": 0.0}, "`alpha` to be a finite number above 0"),
        ({"steps": 0}, "`steps` to be a whole number of at least 1"),
        ({"objective": "hinge"}, "`objective` to be one of"),
        ({"objective": "dlr-targeted"}, "to be used with targeted=True"),
        ({"method": "trades", "beta": -1}, "`beta` to be a finite number of at least 0"),
        ({"method": "madry", "beta": 6.0}, '`beta` to be used with method "trades" or "mart", but got 6.0 for "madry"'),
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
