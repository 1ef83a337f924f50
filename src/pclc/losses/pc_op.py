"""The PC-LC loss of rows as a differentiable operation that composes with the rest of PyTorch.

Two custom operators do the work, so that `torch.compile` sees one node each and every device has its own
implementation. An `autograd.Function` stands around them because an operator with a registered gradient does not go
through `torch.func`. A second derivative takes the differentiable formula at the end of this file.
"""

from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from pclc.losses import pc_torch
from pclc.losses.pc_rows import Rows, Terms


def pc_rows(logits: Tensor, target: Tensor, terms: Terms) -> Tensor:
    """The loss of every row, (N, D), or their mean, in fp32 (fp64 as given); logits (N, K, D), target (N, D)."""
    compiling = torch.compiler.is_compiling()
    if compiling and not (torch.is_grad_enabled() and logits.requires_grad):
        # The compiler stumbles over a Function that nobody differentiates.
        value: Tensor = _forward(logits, target, *terms)[0]
        return value
    function = _PCRows if compiling else _PCRowsWithJvp
    loss: Tensor = function.apply(logits, target, *terms)[0]  # type: ignore[no-untyped-call]
    return loss


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
        ctx.save_for_forward(logits, target, output[-1])
        ctx.terms = Terms(*terms)

    @staticmethod
    def backward(ctx: Any, grad_loss: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        logits, target, *rows = ctx.saved_tensors
        grad = None
        if grad_loss is not None and torch.is_grad_enabled():  # somebody will differentiate this gradient
            weight = grad_loss * rows[-1] if ctx.terms.mean else grad_loss.unsqueeze(1)
            grad = (weight * _differentiable_gradient(logits, target, ctx.terms)).to(logits.dtype)
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
        logits, target, share = ctx.saved_tensors
        slope = None
        if tangent is not None:
            slope = (_differentiable_gradient(logits, target, ctx.terms) * tangent).sum(1)
            slope = slope.sum() * share[0] if ctx.terms.mean else slope
        return slope, *(None for _ in Rows._fields)


def _differentiable_gradient(logits: Tensor, target: Tensor, terms: Terms) -> Tensor:
    """d loss / d logits, row by row, in operations that PyTorch can differentiate again; fp32, or fp64 as given."""
    a = logits if logits.dtype == torch.float64 else logits.float()
    counted = (target != terms.ignore_index).unsqueeze(1)
    y = torch.where(counted, target.unsqueeze(1), 0)
    is_true = torch.zeros_like(a, dtype=torch.bool).scatter(1, y, True)
    false = ~is_true & (a != -torch.inf)
    some = counted & false.any(1, keepdim=True)
    # Where a row has no false class the formulas meet inf - inf; such rows are computed on zeros and dropped.
    a = torch.where(some, a, 0)
    f = torch.softmax(a, 1)
    f_y = f.gather(1, y)
    violates = (false & (f + terms.margin > f_y)).to(a.dtype)
    count, mass = violates.sum(1, keepdim=True), (violates * f).sum(1, keepdim=True)
    # 1 - f_y would cancel, and the number of classes multiplies what rounding leaves of it.
    rest = torch.where(is_true, 0, f).sum(1, keepdim=True)
    grad = torch.where(is_true, -f_y * (count * rest + mass), f * (violates - mass + count * f_y))
    if terms.average_classes:
        grad = grad / false.sum(1, keepdim=True).clamp(min=1)
    a_y = a.gather(1, y)
    false_logits = torch.where(false, a, -torch.inf)
    if terms.hard:
        largest = false_logits.argmax(1, keepdim=True)
        is_largest = torch.zeros_like(is_true).scatter(1, largest, True)
        active = a_y > a.gather(1, largest)
        grad = grad + terms.logit_weight * torch.where(active, is_true.to(a.dtype) - is_largest.to(a.dtype), 0)
    if terms.soft:
        w = torch.softmax(torch.where(some, false_logits, 0), 1)
        below = (false & (a < a_y)).to(a.dtype)
        gap = torch.where(below > 0, a_y - torch.where(below > 0, a, 0), 0)
        mean_gap = (w * gap).sum(1, keepdim=True)
        of_false = w * (gap - mean_gap - below)
        of_true = (w * below).sum(1, keepdim=True)
        grad = grad + terms.logit_weight * torch.where(is_true, of_true, of_false)
    return torch.where(some, grad, 0)
