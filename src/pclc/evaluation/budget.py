r"""The threat model as it is checked: the box, the ball with its rounding, and images that a file can store."""

import math

import torch
from torch import Tensor

from pclc.attacks.types import Norm

# A pixel in [0, 1] is rounded by at most half of this in float32, x + eps by as much again.
_ROUNDING = 2.0**-23


def distances(x_adv: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Linf and L2 of each perturbation, (N,) float64."""
    delta = (x_adv.double() - x.double()).flatten(1)
    return delta.abs().amax(1), torch.linalg.vector_norm(delta, dim=1)


def slack(norm: Norm, x: Tensor) -> float:
    """How far float32 may carry an example over the edge of the ball: 2^-23 a pixel."""
    return _ROUNDING * (1.0 if norm == "Linf" else math.sqrt(math.prod(x.shape[1:])))


def is_inside(x_adv: Tensor, x: Tensor, norm: Norm | None, eps: float | None) -> Tensor:
    """(N,) flags: in the box [0, 1] exactly, and in the ball up to `slack`; without a norm and an eps the box alone.

    Example:
        >>> x = torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.9, 0.5]])
        >>> is_inside(x + torch.tensor([0.2, 0.0]), x, "Linf", 0.1 + 0.1)
        tensor([ True,  True, False])
    """
    inside = ((x_adv >= 0) & (x_adv <= 1)).flatten(1).all(1)  # also false for NaN
    if norm is not None and eps is not None:
        linf, l2 = distances(x_adv, x)
        inside &= (linf if norm == "Linf" else l2) <= eps + slack(norm, x)
    return inside


def by_row(flags: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """The rows of `yes` where a flag is set, of `no` elsewhere."""
    return torch.where(flags.reshape(-1, *[1] * (no.dim() - 1)), yes, no)


def is_storable(x: Tensor) -> bool:
    """Whether every pixel is k/255, as a file of bytes has it."""
    levels = x.double() * 255
    return bool(((levels - levels.round()).abs() <= 255 * _ROUNDING).all())


def toward_image(x_adv: Tensor, x: Tensor) -> Tensor:
    """The storable images next to `x_adv` on the way back to x, so that none leaves the ball or the box.

    Args:
        x_adv: (N, ...) in [0, 1].
        x: (N, ...), storable.

    Example:
        >>> 255 * toward_image(torch.tensor([[0.5, 0.1]]), torch.tensor([[100 / 255, 30 / 255]]))
        tensor([[127.,  26.]])
    """
    levels = (x.double() * 255).round()
    moved = x_adv.double() * 255 - levels
    # A step of exactly 8/255 may have come out of float32 as 7.99999 levels.
    whole = (moved.abs() + 255 * _ROUNDING).floor() * moved.sign()
    return ((levels + whole).clamp(0, 255) / 255).to(x_adv.dtype)


def away_from_image(x_adv: Tensor, x: Tensor, norm: Norm | None = None, eps: float | None = None) -> Tensor:
    """The storable images next to `x_adv` on the way on from x; `toward_image` where that leaves the ball.

    Args:
        x_adv: (N, ...) in [0, 1].
        x: (N, ...), storable.
        norm, eps: the ball; None: the box alone.

    Example:
        >>> x = torch.tensor([[100 / 255, 30 / 255]])
        >>> 255 * away_from_image(torch.tensor([[0.5, 0.1]]), x), 255 * away_from_image(x + 0.03, x, "Linf", 0.03)
        (tensor([[128.,  25.]]), tensor([[107.,  37.]]))
    """
    levels = (x.double() * 255).round()
    moved = x_adv.double() * 255 - levels
    whole = (moved.abs() - 255 * _ROUNDING).ceil()
    if norm == "Linf" and eps is not None:  # each pixel for itself
        whole = whole.clamp(max=math.floor(255 * (eps + _ROUNDING)))
    away = ((levels + whole * moved.sign()).clamp(0, 255) / 255).to(x_adv.dtype)
    return by_row(is_inside(away, x, norm, eps), away, toward_image(x_adv, x))


def as_bytes(x: Tensor) -> Tensor:
    """Storable images as uint8."""
    return (x.double() * 255).round().to(torch.uint8)


def from_bytes(x: Tensor) -> Tensor:
    """Bytes as float32 in [0, 1]; other images as they are."""
    return x.float() / 255 if x.dtype == torch.uint8 else x
