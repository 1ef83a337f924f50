"""How a gradient becomes a step: (gradient, memory, t) -> (step, memory), each with one row per example.

The memory is what a rule carries from step to step: (N, 0) for none, momentum, or Adam's two moments.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from pclc.attacks.balls import per_row, row_norms
from pclc.attacks.types import Norm

Rule = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]

_BETAS = 0.9, 0.999  # of Adam


def ascent_direction(grad: Tensor, norm: Norm) -> Tensor:
    """The steepest direction of unit norm: sign(g), or g / |g|_2; zero where the gradient is zero."""
    if norm == "Linf":
        return grad.sign()
    # Divided by the largest entry first: the squares of a gradient near 1e-25 would be zero in float32.
    largest = row_norms(grad, "Linf")
    unit = grad / torch.where(largest > 0, largest, 1)
    norms = row_norms(unit)
    return unit / torch.where(norms > 0, norms, 1)


def steepest(alpha: float | Tensor, norm: Norm) -> Rule:
    """Move by `alpha` along the steepest direction."""
    return lambda grad, memory, t: (alpha * ascent_direction(grad, norm), memory)


def momentum(alpha: float, norm: Norm, decay: float) -> Rule:
    """Move by `alpha` along the steepest direction of g <- decay * g + gradient / mean |gradient|, for each example."""

    def rule(grad: Tensor, memory: Tensor, t: int) -> tuple[Tensor, Tensor]:
        size = per_row(grad.flatten(1).abs().mean(1), grad)
        memory = decay * memory + grad / torch.where(size > 0, size, 1)
        return alpha * ascent_direction(memory, norm), memory

    return rule


def adam(lr: float) -> Rule:
    """Adam (Kingma and Ba, 2015), uphill; the memory is (N, 2, ...), the first and the second moment."""

    def rule(grad: Tensor, memory: Tensor, t: int) -> tuple[Tensor, Tensor]:
        first = _BETAS[0] * memory[:, 0] + (1 - _BETAS[0]) * grad
        second = _BETAS[1] * memory[:, 1] + (1 - _BETAS[1]) * grad.square()
        unbiased, spread = first / (1 - _BETAS[0] ** (t + 1)), second / (1 - _BETAS[1] ** (t + 1))
        return lr * unbiased / (spread.sqrt() + 1e-8), torch.stack([first, second], 1)

    return rule
