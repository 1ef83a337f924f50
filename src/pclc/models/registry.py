"""Models by name: one decorator, one listing, one way to create them."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from torch import nn

from pclc.hints import did_you_mean
from pclc.models.classifier import Classifier
from pclc.models.config import ModelConfig
from pclc.models.factories import Factory, call_factory, import_factory
from pclc.models.normalize import Normalize, Normalized

_FACTORIES: dict[str, Factory] = {}

F = TypeVar("F", bound=Factory)


def register_model(name: str) -> Callable[[F], F]:
    """Register a function or class that makes a model, so that `create_model(name)` finds it.

    It is called with those of `num_classes`, `in_channels` and `image_size` that its signature has; where the caller
    gives none its own defaults hold.

    Example:
        >>> @register_model("line")
        ... def line(num_classes: int = 10, in_channels: int = 1, image_size: int = 28) -> nn.Module:
        ...     return nn.Sequential(nn.Flatten(), nn.Linear(in_channels * image_size**2, num_classes))
        >>> create_model("line", num_classes=3)[1].out_features
        3
    """
    if ":" in name or not name:
        raise ValueError(f"Expected argument `name` to be a name without a colon, but got {name!r}.")
    if name in _FACTORIES:
        raise ValueError(f"Expected argument `name` to be new, but a model {name!r} is registered already.")

    def register(factory: F) -> F:
        _FACTORIES[name] = factory
        return factory

    return register


def model_names() -> tuple[str, ...]:
    """Return the names of the registered models, sorted."""
    return tuple(sorted(_FACTORIES))


def create_model(
    name: str,
    num_classes: int = 10,
    in_channels: int | None = None,
    image_size: int | None = None,
    normalize: tuple[Sequence[float], Sequence[float]] | None = None,
) -> nn.Module:
    """Create a model that takes float images in [0, 1], (N, C, H, W), and returns logits, (N, num_classes).

    Args:
        name: a registered name (`model_names()`), or `package.module:factory` for any other model: it is imported, and
            called with those of the next three arguments that it accepts.
        num_classes: number of logits.
        in_channels: channels of the images; None: the model's default (1 for the LeNets and cnn3, 3 for the others).
        image_size: height and width of the images; None: the model's default.
        normalize: (mean, std), a number for each channel, for a `Normalize` layer in front; None: no such layer.

    The model knows its configuration (`model.pclc_config`), so that `save_model` can write it down.

    Example:
        >>> model = create_model("lenet5")
        >>> sum(parameter.numel() for parameter in model.parameters())
        61706
        >>> model.pclc_config
        ModelConfig(name='lenet5', num_classes=10, in_channels=1, image_size=28, normalize=None)
    """
    config = ModelConfig(name, num_classes, in_channels, image_size, normalize)  # type: ignore[arg-type]  # made tuples there
    model = call_factory(
        name, _find_factory(name), num_classes=num_classes, in_channels=in_channels, image_size=image_size
    )
    if isinstance(model, Classifier):
        config = replace(config, in_channels=model.in_channels, image_size=model.image_size)
    if config.normalize is not None:
        model = Normalized(_normalize_layer(config), model)
    model.__dict__["pclc_config"] = config  # a plain attribute, which is copied and pickled with the model
    return model


def _find_factory(name: str) -> Factory:
    if ":" in name:
        return import_factory(name)
    if name not in _FACTORIES:
        hint = did_you_mean(name.lower(), _FACTORIES)
        choices = ", ".join(model_names())
        raise ValueError(
            f"Expected the model to be one of {choices}, or package.module:factory, but got {name!r}.{hint}"
        )
    return _FACTORIES[name]


def _normalize_layer(config: ModelConfig) -> Normalize:
    assert config.normalize is not None
    mean, std = config.normalize
    if config.in_channels is not None and len(mean) not in (1, config.in_channels):
        raise ValueError(
            f"Expected argument `normalize` to have 1 or {config.in_channels} numbers in `mean` and in `std` "
            f"for images of {config.in_channels} channels, but got {len(mean)}."
        )
    return Normalize(mean, std)
