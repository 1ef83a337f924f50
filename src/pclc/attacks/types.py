"""The words that all attacks use, and the one way to drop rows."""

from collections.abc import Callable
from typing import Any, Literal, TypeVar, get_args

from torch import Tensor

Model = Callable[[Tensor], Tensor]  # images (N, ...) to logits (N, K)
Norm = Literal["Linf", "L2"]
Stop = Literal["success", "never"]

NORMS: tuple[Norm, ...] = get_args(Norm)
STOPS: tuple[Stop, ...] = get_args(Stop)

Rows = TypeVar("Rows", bound=tuple[Any, ...])


def keep(rows: Rows, which: Tensor) -> Rows:
    """These rows of every tensor in a tuple, by number or by flag; for flags a device has to be waited for."""
    make: Any = getattr(rows, "_make", tuple)  # a NamedTuple takes its fields one by one
    kept: Rows = make(tensor[which] for tensor in rows)
    return kept
