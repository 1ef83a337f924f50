"""The gradient of an objective with respect to the images."""

import torch
from torch import Tensor

from pclc.attacks.objectives import Objective
from pclc.attacks.types import Model


def input_gradient(model: Model, objective: Objective, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """The logits at x, (N, K), and the gradient of each row's objective with respect to its x, of the shape of x.

    Rows do not mix, so the gradient of the sum is the gradient of each.

    Example:
        >>> x, y = torch.rand(3, 2), torch.tensor([0, 0, 0])
        >>> logits, grad = input_gradient(lambda x: 2 * x, lambda z, y: z[:, 0], x, y)
        >>> grad[0]
        tensor([2., 0.])
    """
    with torch.enable_grad():
        leaf = x.detach().requires_grad_()
        logits = model(leaf)
        if not logits.requires_grad:
            raise ValueError(
                "Expected `model` to be differentiable with respect to `x`, but its logits have no gradient: it "
                "detaches them, or runs under torch.no_grad(). SPSA, Noise and Transfer need no gradient."
            )
        (grad,) = torch.autograd.grad(objective(logits, y).sum(), leaf)
    return logits.detach(), grad


def is_zero(grad: Tensor) -> Tensor:
    """(N,) flags: every entry of the row's gradient is exactly zero."""
    return ~grad.flatten(1).any(1)
