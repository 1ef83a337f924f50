"""The words that all attacks use."""

from collections.abc import Callable
from typing import Literal, get_args

from torch import Tensor

Model = Callable[[Tensor], Tensor]  # images (N, ...) to logits (N, K)
Norm = Literal["Linf", "L2"]
Stop = Literal["success", "never"]

NORMS: tuple[Norm, ...] = get_args(Norm)
STOPS: tuple[Stop, ...] = get_args(Stop)
