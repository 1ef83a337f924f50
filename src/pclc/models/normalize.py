"""Normalisation as the first layer of a model, so that attacks and data stay in [0, 1]."""

import math
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from pclc.models.classifier import Classifier


class Normalize(nn.Module):
    """(x - mean) / std for each channel; x is (N, C, H, W), mean and std have C numbers (or one, for all channels).

    The numbers are buffers: they move with the model and are not trained. They are not in the `state_dict` but in the
    model's configuration, so that weights load with and without normalisation.

    Example:
        >>> Normalize([0.5], [0.25])(torch.ones(1, 1, 1, 1)).item()
        2.0
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        try:  # tensors and arrays are welcome too
            mean, std = ([float(value) for value in values] for values in (mean, std))
        except TypeError:
            raise ValueError(
                f"Expected `mean` and `std` to have a number for each channel, but got {mean!r} and {std!r}."
            ) from None
        if not mean or len(mean) != len(std):
            raise ValueError(
                f"Expected `mean` and `std` to have a number for each channel, but got {len(mean)} and {len(std)}."
            )
        if not all(math.isfinite(value) for value in mean):
            raise ValueError(f"Expected `mean` to be finite, but got {list(mean)}.")
        if not all(math.isfinite(value) and value > 0 for value in std):
            raise ValueError(f"Expected `std` to be positive and finite, but got {list(std)}.")
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32).view(-1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise each channel of x."""
        return (x - self.mean) / self.std


class Normalized(nn.Module):
    """A model behind a `Normalize` layer: forward(x) = model(normalize(x)), `features` likewise where it has any."""

    def __init__(self, normalize: Normalize, model: nn.Module) -> None:
        super().__init__()
        self.normalize = normalize
        self.model = model

    @property
    def head(self) -> nn.Module:
        """The head of the model behind the normalisation."""
        return cast(Classifier, self.model).head

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate layer of the model behind the normalisation, (N, F)."""
        return cast(Classifier, self.model).features(self.normalize(x))

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (N, num_classes)."""
        logits: Tensor = self.model(self.normalize(x))
        return logits
