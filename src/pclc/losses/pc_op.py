"""The PC-LC loss of rows as a differentiable operation that composes with the rest of PyTorch.

Two custom operators do the work, so that `torch.compile` sees one node each and every device has its own
implementation. An `autograd.Function` stands around them because an operator with a registered gradient does not go
through `torch.func`. A second derivative uses the differentiable formula of `pc_dense.py`, and so do small inputs on
the CPU, where calling operations costs more than their work.
"""

from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from pclc.losses import pc_torch
from pclc.losses.pc_dense import loss_and_gradient
from pclc.losses.pc_rows import Rows, Terms

SMALL = 1 << 15  # logits


def pc_rows(logits: Tensor, target: Tensor, terms: Terms) -> Tensor:
    """The loss of every row, (N, D), or their mean, in fp32 (fp64 as given); logits (N, K, D), target (N, D)."""
    compiling = torch.compiler.is_compiling()
    if compiling and not (torch.is_grad_enabled() and logits.requires_grad):
        # The compiler stumbles over a Function that nobody differentiates.
        value: Tensor = _forward(logits, target, *terms)[0]
        return value
    function = _PCRows if compiling else _PCDense if _small(logits, terms) else _PCRowsWithJvp
    loss: Tensor = function.apply(logits, target, *terms)[0]  # type: ignore[no-untyped-call]
    return loss


def _small(logits: Tensor, terms: Terms) -> bool:
    """Whether the CPU would spend more on calling operations than on their work; the gradient may then be kept.

    Only for the mean: the loss of a single row must have the same bits however many rows there are.
    """
    return terms.mean and logits.device.type == "cpu" and logits.numel() <= SMALL


@cache
def _kernels() -> ModuleType:
    """The Triton kernels, or the closed form where Triton is not installed."""
    try:
        from pclc.losses import pc_triton
    except ImportError:
        return pc_torch
    return pc_triton


def _implementation(logits: Tensor) -> ModuleType:
    return _kernels() if logits.is_cuda else pc_torch


@torch.library.custom_op("pclc::pc_rows", mutates_args=())
def _forward(
    logits: Tensor,
    target: Tensor,
    margin: float,
    logit_weight: float,
    soft_constraint: bool,
    average_classes: bool,
    ignore_index: int,
    mean: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    terms = Terms(margin, logit_weight, soft_constraint, average_classes, ignore_index, mean)
    # Triton launches on the current device, wherever the tensors are.
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        loss, rows = _implementation(logits).forward(logits, target, terms)
    return loss, *rows


@_forward.register_fake
def _(logits: Tensor, target: Tensor, *terms: Any) -> tuple[Tensor, ...]:
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    loss = torch.empty(target.shape, dtype=dtype, device=logits.device)
    rows = Rows.empty(loss, Terms(*terms))
    return loss.new_empty(()) if Terms(*terms).mean else loss, *rows


@torch.library.custom_op("pclc::pc_rows_backward", mutates_args=())
def _backward(
    grad_loss: Tensor,
    logits: Tensor,
    target: Tensor,
    rows: list[Tensor],
    margin: float,
    logit_weight: float,
    soft_constraint: bool,
    average_classes: bool,
    ignore_index: int,
    mean: bool,
) -> Tensor:
    terms = Terms(margin, logit_weight, soft_constraint, average_classes, ignore_index, mean)
    with torch.cuda.device_of(logits):  # type: ignore[no-untyped-call]
        grad: Tensor = _implementation(logits).backward(grad_loss, logits, target, Rows(*rows), terms)
    return grad


@_backward.register_fake
def _(grad_loss: Tensor, logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits)


class _PCRows(torch.autograd.Function):
    """(logits, target, *terms) to (loss, *rows); only the loss has a gradient."""

    @staticmethod
    def forward(logits: Tensor, target: Tensor, *terms: Any) -> tuple[Tensor, ...]:
        return tuple(_forward(logits, target, *terms))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        logits, target, *terms = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(logits, target, *output[1:])
        ctx.save_for_forward(logits, target)
        ctx.terms = Terms(*terms)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        logits, target, *rows = ctx.saved_tensors
        grad = None
        if grad_loss is not None and torch.is_grad_enabled():  # somebody will differentiate this gradient
            grad = _times(grad_loss, loss_and_gradient(logits, target, ctx.terms)[1], logits.dtype)
        elif grad_loss is not None:
            grad = _backward(grad_loss.expand(target.shape), logits, target, rows, *ctx.terms)
        return grad, None, *(None for _ in ctx.terms)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], logits: Tensor, target: Tensor, *terms: Any
    ) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
        """Rows are independent, so a mapped dimension becomes more of them; a mean is taken of each member's rows."""
        size = info.batch_size
        logits_dim, target_dim = in_dims[:2]
        logits = logits.expand(size, *logits.shape) if logits_dim is None else logits.movedim(logits_dim, 0)
        target = target.expand(size, *target.shape) if target_dim is None else target.movedim(target_dim, 0)
        of_rows = Terms(*terms)._replace(mean=False)
        outputs = _PCRowsWithJvp.apply(  # type: ignore[no-untyped-call]
            logits.flatten(0, 1), target.flatten(0, 1), *of_rows
        )
        # A part of the rows that these terms do not need is empty, and stays so for every member of the batch.
        loss, *rows = (out.unflatten(0, (size, -1)) if out.numel() else out.new_empty(size, 0) for out in outputs[:-1])
        share = outputs[-1].expand(size, 1)
        if Terms(*terms).mean:
            share = 1 / (target != of_rows.ignore_index).flatten(1).sum(1, keepdim=True, dtype=loss.dtype)
            loss = loss.flatten(1).sum(1) * share[:, 0]
        return (loss, *rows, share), (0,) * len(outputs)


class _PCRowsWithJvp(_PCRows):
    """The same with forward-mode differentiation, which `torch.compile` refuses to trace."""

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        return _slope(ctx, tangent), *(None for _ in Rows._fields)


class _PCDense(torch.autograd.Function):
    """(logits, target, *terms) to (loss, gradient), the gradient being made with the loss."""

    generate_vmap_rule = True
    setup_context = staticmethod(_PCRows.setup_context)

    @staticmethod
    def forward(logits: Tensor, target: Tensor, *terms: Any) -> tuple[Tensor, Tensor]:
        return loss_and_gradient(logits, target, Terms(*terms))

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, _: None) -> tuple[Tensor | None, ...]:
        logits, target, gradient = ctx.saved_tensors
        if torch.is_grad_enabled():  # somebody will differentiate this gradient
            gradient = loss_and_gradient(logits, target, ctx.terms)[1]
        grad = None if grad_loss is None else _times(grad_loss, gradient, logits.dtype)
        return grad, None, *(None for _ in ctx.terms)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor | None, *_: None) -> tuple[Tensor | None, None]:
        return _slope(ctx, tangent), None


def _times(grad_loss: Tensor, gradient: Tensor, dtype: torch.dtype) -> Tensor:
    return ((grad_loss.unsqueeze(1) if grad_loss.dim() else grad_loss) * gradient).to(dtype)


def _slope(ctx: Any, tangent: Tensor | None) -> Tensor | None:
    """How the loss changes along a tangent."""
    logits, target = ctx.saved_tensors[:2]
    if tangent is None:
        return None
    change = loss_and_gradient(logits, target, ctx.terms)[1] * tangent
    return change.sum() if ctx.terms.mean else change.sum(1)
