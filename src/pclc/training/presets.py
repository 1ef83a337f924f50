"""The paper's protocol by name of the data set."""

from dataclasses import dataclass
from typing import Any

from pclc.training.config import TrainConfig


@dataclass(frozen=True)
class Preset:
    """The network and the numbers that the paper uses for a data set, or that suit it where it has none."""

    model: str
    epochs: int
    augmentation: str
    batch_size: int = 256


# T = 50 epochs a phase on grey sets and 150 on colour ones. The augmentation is not stated in the paper: none on grey
# sets, what is common on colour ones (digits of house numbers are not mirrored), the authors' own on Tiny ImageNet.
PRESETS = {
    "digits": Preset("lenet8", 30, "none", batch_size=64),
    "mnist": Preset("lenet5", 50, "none"),
    "kmnist": Preset("lenet5", 50, "none"),
    "fashion-mnist": Preset("lenet5", 50, "none"),
    "cifar10": Preset("vgg13", 150, "crop-flip"),
    "svhn": Preset("vgg13", 150, "crop"),
    "cifar100": Preset("resnet56", 150, "crop-flip"),
    "tiny-imagenet": Preset("resnet56", 150, "authors"),
}


def paper_config(dataset: str, **changes: Any) -> TrainConfig:
    """The paper's configuration for a data set, with changes.

    Example:
        >>> paper_config("cifar10", loss="ce").epochs
        150
    """
    if dataset not in PRESETS:
        raise ValueError(f"Expected a data set with a preset ({', '.join(PRESETS)}), but got {dataset!r}.")
    preset = PRESETS[dataset]
    numbers = {
        "warm_up_epochs": preset.epochs,
        "epochs": preset.epochs,
        "augmentation": preset.augmentation,
        "batch_size": preset.batch_size,
    }
    return TrainConfig(**{**numbers, **changes})
