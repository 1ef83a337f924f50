"""The gradient of an objective with respect to the images."""

from collections.abc import Callable

import torch
from torch import Tensor

from pclc.attacks.balls import per_row
from pclc.attacks.inputs import explain_inference
from pclc.attacks.types import Model

_STEEP = 1e30  # in place of infinity: sums over an image stay finite in float32

# The largest entry of a row that goes back through a network in fp16: 65,504 is the largest number there, 6e-5 the
# smallest one with all digits, and on their way gradients rather shrink.
_LARGEST_IN_FP16 = 256.0

_NO_GRADIENT = (
    "Expected `model` to be differentiable with respect to `x`, but its logits have no gradient: it detaches them, "
    "runs under torch.no_grad(), or is quantised. SPSA, Noise and Transfer need no gradient."
)


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
        leaf, logits = _pass(model, x)
        value = objective(logits, *rows)
        (grad,) = torch.autograd.grad(value.sum(), leaf, allow_unused=True)
    if grad is None:
        raise ValueError(_NO_GRADIENT)
    return logits.detach().clone(), value.detach(), _numbers(grad)


def fp16_gradient(
    model: Model, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The same where fp16 goes back through the model, and (N,) flags of rows for which its range was too small.

    What goes back from the logits is scaled, each row by itself, to the middle of that range, and the gradient is
    scaled back. A row is lost where a number is infinite or NaN, and where not even its largest entry has all digits:
    smaller ones are rounded to zero long before that one is.
    """
    with torch.enable_grad(), explain_inference():
        leaf, logits = _pass(model, x)
        cut = logits.detach().requires_grad_()
        value = objective(cut, *rows)
        (back,) = torch.autograd.grad(value.sum(), cut)
        unit = (back.abs().amax(1) / _LARGEST_IN_FP16).clamp_min(torch.finfo(back.dtype).tiny)
        (grad,) = torch.autograd.grad(logits, leaf, back / unit[:, None])
    largest = grad.abs().flatten(1).amax(1)
    lost = ~largest.isfinite() | ((largest < torch.finfo(torch.float16).tiny) & ~is_zero(back))
    return logits.detach().clone(), value.detach(), _numbers(grad * per_row(unit, grad)), lost


def _pass(model: Model, x: Tensor) -> tuple[Tensor, Tensor]:
    """A leaf of the graph, and the logits at it."""
    leaf = x.detach().requires_grad_()
    logits = model(leaf.clone())  # into which it may write
    if not logits.requires_grad:
        raise ValueError(_NO_GRADIENT)
    return leaf, logits


def _numbers(grad: Tensor) -> Tensor:
    # The derivative of a square root at a black pixel, say: no direction, and no reason to lose the image to NaN.
    return torch.nan_to_num(grad, nan=0.0, posinf=_STEEP, neginf=-_STEEP)


def is_zero(grad: Tensor) -> Tensor:
    """(N,) flags: every entry of the row's gradient is exactly zero."""
    return ~grad.flatten(1).any(1)
