"""The configuration that a model was created from, with which a file can rebuild it."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn


@dataclass(frozen=True)
class ModelConfig:
    """The arguments of `create_model`.

    `in_channels` and `image_size` are None only for a model from elsewhere (`package.module:factory`) that was created
    without them. `normalize` is (mean, std), one number for each channel.
    """

    name: str
    num_classes: int = 10
    in_channels: int | None = None
    image_size: int | None = None
    normalize: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise ValueError(f"Expected argument `name` to be the name of a model, but got {self.name!r}.")
        _check_count("num_classes", self.num_classes, smallest=2)
        if self.in_channels is not None:
            _check_count("in_channels", self.in_channels, smallest=1)
        if self.image_size is not None:
            _check_count("image_size", self.image_size, smallest=1)
        if self.normalize is not None:
            object.__setattr__(self, "normalize", _mean_and_std(self.normalize))


def config_of(model: nn.Module) -> ModelConfig:
    """Return the configuration of a model that `create_model` or `load_model` made."""
    config = getattr(model, "pclc_config", None)
    if not isinstance(config, ModelConfig):
        raise ValueError(
            f"Expected `model` to come from create_model or load_model, which note how to rebuild it, but got a "
            f"{type(model).__name__} without that note. Use create_model('package.module:factory')."
        )
    return config


def _check_count(name: str, value: object, *, smallest: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < smallest:
        raise ValueError(f"Expected argument `{name}` to be an integer of at least {smallest}, but got {value!r}.")


def _mean_and_std(normalize: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Turn lists, as JSON has them, into tuples."""
    try:
        mean, std = normalize
        return tuple(float(value) for value in mean), tuple(float(value) for value in std)
    except (TypeError, ValueError):
        raise ValueError(
            f"Expected argument `normalize` to be (mean, std) with a number for each channel, but got {normalize!r}."
        ) from None
