"""The gradient of an objective with respect to the images."""

from collections.abc import Callable

import torch
from torch import Tensor

from pclc.attacks.inputs import explain_inference
from pclc.attacks.types import Model

_STEEP = 1e30  # in place of infinity: sums over an image stay finite in float32


def input_gradient(
    model: Model, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The logits at x, (N, K), each row's objective(logits, *rows), (N,), and its gradient, of the shape of x.

    Entries of the gradient that are NaN are 0. Rows do not mix, so the gradient of the sum is the gradient of each.

    Example:
        >>> x, y = torch.rand(3, 2), torch.tensor([0, 0, 0])
        >>> logits, value, grad = input_gradient(lambda x: 2 * x, lambda z, y: z[:, 0], x, y)
        >>> grad[0]
        tensor([2., 0.])
    """
    with torch.enable_grad(), explain_inference():
        leaf = x.detach().requires_grad_()
        logits = model(leaf.clone())  # into which it may write
        if not logits.requires_grad:
            raise ValueError(
                "Expected `model` to be differentiable with respect to `x`, but its logits have no gradient: it "
                "detaches them, or runs under torch.no_grad(). SPSA, Noise and Transfer need no gradient."
            )
        value = objective(logits, *rows)
        (grad,) = torch.autograd.grad(value.sum(), leaf)
    # The derivative of a square root at a black pixel, say: no direction, and no reason to lose the image to NaN.
    return logits.detach().clone(), value.detach(), torch.nan_to_num(grad, nan=0.0, posinf=_STEEP, neginf=-_STEEP)


def is_zero(grad: Tensor) -> Tensor:
    """(N,) flags: every entry of the row's gradient is exactly zero."""
    return ~grad.flatten(1).any(1)
