"""The configuration: the paper's numbers, its phases, its schedule, and sentences for the rest."""

import json

import pytest
import torch
from torch import nn

from pclc.training import LOSSES, PRESETS, TrainConfig, paper_config
from pclc.training.config import Phase


def test_the_papers_numbers() -> None:
    config = TrainConfig()
    assert (config.loss, config.batch_size, config.lr, config.margin, config.logit_weight) == (
        "pc-lc", 256, 0.01, 0.995, 0.05,
    )  # fmt: skip
    assert {name: (preset.model, preset.epochs, preset.augmentation) for name, preset in PRESETS.items()} == {
        "digits": ("lenet8", 30, "none"),
        "mnist": ("lenet5", 50, "none"),
        "kmnist": ("lenet5", 50, "none"),
        "fashion-mnist": ("lenet5", 50, "none"),
        "cifar10": ("vgg13", 150, "crop-flip"),
        "svhn": ("vgg13", 150, "crop"),
        "cifar100": ("vgg13", 150, "crop-flip"),
        "tiny-imagenet": ("vgg13", 150, "authors"),
    }


@pytest.mark.parametrize(
    ("loss", "criteria"),
    [
        ("ce", [("ce",), ("ce",)]),
        ("gce", [("gce",), ("gce",)]),
        ("cot", [("ce", "complement"), ("ce", "complement")]),
        ("pc-lc", [("ce",), ("pc-lc",)]),
        ("pc", [("ce",), ("pc",)]),
        ("pc-lc-authors", [("ce",), ("pc-lc-authors",)]),
    ],
)
def test_phases(loss: str, criteria: list[tuple[str, ...]]) -> None:
    config = TrainConfig(loss=loss, warm_up_epochs=3, epochs=5)  # type: ignore[arg-type]
    assert config.phases == (Phase(criteria[0], 3), Phase(criteria[1], 5))
    assert TrainConfig(loss=loss, warm_up_epochs=0, epochs=5).phases == (Phase(criteria[1], 5),)  # type: ignore[arg-type]


def test_every_loss_has_a_phase_test() -> None:
    assert set(LOSSES) == {"ce", "gce", "cot", "pc", "pc-lc", "pc-lc-authors"}


def test_schedule_falls_at_a_third_and_two_thirds_of_each_phase() -> None:
    config = TrainConfig(epochs=150)
    phase = config.phases[1]
    rates = [config.learning_rate(phase, epoch) for epoch in range(150)]
    assert rates[0] == rates[49] == 0.01
    assert rates[50] == rates[99] == pytest.approx(0.002)
    assert rates[100] == rates[149] == pytest.approx(0.0004)


@pytest.mark.parametrize("name", ["ce", "gce", "complement", "pc", "pc-lc", "pc-lc-authors"])
def test_criteria_carry_the_configurations_numbers(name: str) -> None:
    config = TrainConfig(margin=0.8, logit_weight=0.3, alpha=0.7)
    criterion = config.criterion(name)
    expected = {
        "ce": "CrossEntropyLoss()",
        "gce": "GuidedComplementEntropy(alpha=0.7)",
        "complement": "ComplementEntropy()",
        "pc": "PCLoss(margin=0.8, logit_weight=0.0, constraint='hard', average_classes=False)",
        "pc-lc": "PCLoss(margin=0.8, logit_weight=0.3, constraint='hard', average_classes=False)",
        "pc-lc-authors": "PCLoss(margin=0.8, logit_weight=0.3, constraint='soft', average_classes=True)",
    }
    assert isinstance(criterion, nn.Module)
    assert repr(criterion) == expected[name]
    assert criterion(torch.randn(2, 4), torch.tensor([0, 1])).isfinite()


def test_label_smoothing_is_that_of_every_cross_entropy() -> None:
    config = TrainConfig(loss="pc-lc", label_smoothing=0.2)
    logits, y = torch.tensor([[2.0, 0.0, -1.0, 1.0]]), torch.tensor([1])
    target = torch.full((1, 4), 0.05)
    target[0, 1] += 0.8
    expected = -(target * logits.log_softmax(1)).sum()
    torch.testing.assert_close(config.criterion("ce")(logits, y), expected)
    assert TrainConfig().criterion("ce")(logits, y) == -logits.log_softmax(1)[0, 1]


def test_json_and_back() -> None:
    config = paper_config("cifar10", loss="gce", seed=3, milestones=(0.5,))
    assert TrainConfig.from_dict(json.loads(json.dumps(config.as_dict()))) == config
    with pytest.raises(ValueError, match="but got momentum"):
        TrainConfig.from_dict({"momentum": 0.9})


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"loss": "hinge"}, "`loss` to be one of ce, gce, cot, pc, pc-lc, pc-lc-authors, but got 'hinge'"),
        ({"epochs": 0}, "`epochs` to be a whole number of at least 1, but got 0"),
        ({"epochs": 1.5}, "`epochs` to be a whole number"),
        ({"warm_up_epochs": -1}, "`warm_up_epochs` to be a whole number of at least 0"),
        ({"batch_size": 0}, "`batch_size`"),
        ({"lr": 0.0}, "`lr` to be greater than 0"),
        ({"lr_factor": 2.0}, r"`lr_factor` to be in \(0, 1\]"),
        ({"milestones": (1.5,)}, "`milestones` to be shares of a phase"),
        ({"milestones": 0.5}, "`milestones` to be shares of a phase, each in .*, but got 0.5"),
        ({"milestones": ("a",)}, "`milestones` to be shares of a phase"),
        ({"lr": "0.1"}, "`lr` to be an int or a float, but got '0.1'"),
        ({"ema": True}, "`ema` to be an int or a float, but got True"),
        ({"optimizer": "sgd", "momentum": "0.9"}, r"`momentum` to be in \[0, 1\), but got '0.9'"),
        ({"weight_decay": -1}, "`weight_decay` to be at least 0"),
        ({"margin": 0.0}, "`margin`"),
        ({"logit_weight": -1}, "`logit_weight`"),
        ({"alpha": -1}, "`alpha`"),
        ({"augmentation": "mixup"}, "`augmentation` to be one of none, crop, crop-flip, authors, but got 'mixup'"),
        ({"validation": 1.0}, r"`validation` to be in \[0, 1\)"),
        ({"seed": -1}, "`seed`"),
        ({"seed": 2**63}, r"`seed` to be a whole number of at least 0, below 2\*\*63, but got"),
    ],
)
def test_refusals(arguments: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        TrainConfig(**arguments)  # type: ignore[arg-type]


def test_a_data_set_without_preset() -> None:
    with pytest.raises(ValueError, match="a data set with a preset"):
        paper_config("imagenet")
