"""The PC-LC loss as two Triton kernels: one pass over the logits forward, one backward.

A program handles a tile of rows and walks over the classes. The statistics of a row, the meaning of τ, and the
formulas are those of `pc_rows.py`; nothing of the size of the logits is written but the gradient.
"""

import numpy as np
import torch
import triton
import triton.language as tl
from torch import Tensor

from pclc.losses.pc_rows import Rows, Terms

# Up to this many classes a row fits into registers as a whole, and needs no running maximum.
_WHOLE_ROW = 4096
# Up to this many rows one program reduces them all, which costs less than PyTorch's several launches.
_ROWS_OF_ONE_PROGRAM = 1 << 17
_SMALLEST = {torch.float32: -3.0e38, torch.float64: -1.0e308}


@triton.jit
def _walk_over_classes(
    start, lk, K, counted, y, a_y,
    SOFT: tl.constexpr, ACC: tl.constexpr, SMALLEST: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    """The largest false logit, its class, and sums over the false classes, relative to it, of rows of any length.

    Each lane keeps a running maximum of the logits it saw and sums relative to that; lanes meet once, at the end.
    """
    lane = tl.arange(0, BLOCK_K)
    top = tl.full((BLOCK_R, BLOCK_K), SMALLEST, ACC)
    top_block = tl.zeros((BLOCK_R, BLOCK_K), tl.int32)
    total = tl.zeros((BLOCK_R, BLOCK_K), ACC)
    present = tl.zeros((BLOCK_R, BLOCK_K), ACC)
    gap_sum = tl.zeros((BLOCK_R, BLOCK_K), ACC)
    below_sum = tl.zeros((BLOCK_R, BLOCK_K), ACC)
    for first in range(0, K, BLOCK_K):
        k = first + lane
        false = counted[:, None] & (k < K)[None, :] & (k[None, :] != y[:, None])
        a = tl.load(start[:, None] + k[None, :] * lk, mask=false, other=-float("inf")).to(ACC)
        higher = a > top
        e = tl.exp(-tl.abs(a - top))
        present += tl.where(a != -float("inf"), 1.0, 0.0)
        if SOFT:
            lower = (a_y[:, None] > a) & (a != -float("inf"))
            below = tl.where(lower, 1.0, 0.0)
            gap = tl.where(lower, a_y[:, None] - a, 0.0)
            gap_sum = tl.where(higher, gap_sum * e + gap, gap_sum + e * gap)
            below_sum = tl.where(higher, below_sum * e + below, below_sum + e * below)
        total = tl.where(higher, total * e + 1.0, total + e)
        top_block = tl.where(higher, first, top_block)
        top = tl.where(higher, a, top)
    a_j = tl.max(top, axis=1)
    scale = tl.exp(top - a_j[:, None])
    j = tl.min(tl.where(top == a_j[:, None], top_block + lane[None, :], K), axis=1)
    return (
        a_j,
        tl.sum(total * scale, axis=1),
        tl.sum(present, axis=1),
        j,
        tl.sum(gap_sum * scale, axis=1),
        tl.sum(below_sum * scale, axis=1),
    )


@triton.jit
def _mean_kernel(loss, target, mean, share, R, ignore_index, ACC: tl.constexpr, BLOCK: tl.constexpr):
    """The mean over the rows that count, and one over their number; by a single program."""
    total = tl.zeros((BLOCK,), ACC)
    counted = tl.zeros((BLOCK,), tl.int32)
    for first in range(0, R, BLOCK):
        row = first + tl.arange(0, BLOCK)
        total += tl.load(loss + row, mask=row < R, other=0.0)
        y = tl.load(target + row, mask=row < R, other=ignore_index)
        counted += (y != ignore_index).to(tl.int32)
    one_row = 1.0 / tl.sum(counted, axis=0).to(ACC)
    tl.store(mean, tl.sum(total, axis=0) * one_row)
    tl.store(share, one_row)


@triton.jit
def _forward_kernel(
    logits, target, loss, top_logit, log_norm, tau, shift, true_grad, hard_class, false_lse, mean_gap,
    R, K, D, ln, lk, ld, ignore_index, margin_high, margin_low, logit_weight_high, logit_weight_low,
    SOFT: tl.constexpr, HARD: tl.constexpr, AVERAGE: tl.constexpr, WHOLE: tl.constexpr, ACC: tl.constexpr,
    SMALLEST: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    # Triton hands floats over in fp32; two of them carry what fp64 needs.
    margin = tl.full((BLOCK_R,), margin_high, ACC) + tl.full((BLOCK_R,), margin_low, ACC)
    logit_weight = tl.full((BLOCK_R,), logit_weight_high, ACC) + tl.full((BLOCK_R,), logit_weight_low, ACC)
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    inside = row < R
    y = tl.load(target + row, mask=inside, other=ignore_index)
    counted = inside & (y != ignore_index)
    tl.device_assert((counted == 0) | ((y >= 0) & (y < K)), "pclc: a label lies outside [0, number of classes)")
    y = tl.where(counted, y, 0)
    start = logits + (row // D) * ln + (row % D) * ld
    a_y = tl.load(start + y * lk, mask=counted, other=0.0).to(ACC)

    lane = tl.arange(0, BLOCK_K)
    if WHOLE:
        false = counted[:, None] & (lane < K)[None, :] & (lane[None, :] != y[:, None])
        a = tl.load(start[:, None] + lane[None, :] * lk, mask=false, other=-float("inf")).to(ACC)
        a_j, j = tl.max(a, axis=1, return_indices=True)  # of equal ones the first
        a_j = tl.maximum(a_j, SMALLEST)
        e = tl.exp(a - a_j[:, None])
        s = tl.sum(e, axis=1)
        # A NaN counts, so that it reaches the loss.
        n_false = tl.sum(tl.where(a != -float("inf"), 1.0, 0.0), axis=1).to(ACC)
        if SOFT:
            below = (a_y[:, None] > a) & (a != -float("inf"))
            gap = tl.sum(tl.where(below, (a_y[:, None] - a) * e, 0.0), axis=1)
            below_mass = tl.sum(tl.where(below, e, 0.0), axis=1)
    else:
        a_j, s, n_false, j, gap, below_mass = _walk_over_classes(
            start, lk, K, counted, y, a_y, SOFT, ACC, SMALLEST, BLOCK_R, BLOCK_K
        )
    s = tl.where((a_j == float("inf")) | (a_y == float("inf")), float("nan"), s)
    some = counted & (n_false > 0)

    # From here on logits are relative to a_j.
    z = tl.log(s)
    delta = (a_y - a_j) - z
    f_y = 1.0 / (1.0 + tl.exp(-delta))
    rest = 1.0 / (1.0 + tl.exp(delta))  # 1 - f_y without cancellation
    lse = z + tl.where(delta > 0, delta, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(delta)))
    excess = f_y - margin
    everything = excess < 0
    row_tau = tl.where(everything, -float("inf"), lse + tl.log(tl.where(everything, 1.0, excess)))

    count = tl.where(everything, n_false, 0.0)
    mass = tl.where(everything, rest, 0.0)
    some_violate = some & (everything == 0) & (row_tau < 0)
    if tl.max(some_violate.to(tl.int32), axis=0) == 1:
        counts = tl.zeros((BLOCK_R, BLOCK_K), ACC)
        masses = tl.zeros((BLOCK_R, BLOCK_K), ACC)
        for first in range(0, K, BLOCK_K):
            k = first + lane
            false = some_violate[:, None] & (k < K)[None, :] & (k[None, :] != y[:, None])
            a = tl.load(start[:, None] + k[None, :] * lk, mask=false, other=-float("inf")).to(ACC)
            a -= a_j[:, None]
            violates = false & (a > row_tau[:, None])
            counts += tl.where(violates, 1.0, 0.0)
            masses += tl.where(violates, tl.exp(a - lse[:, None]), 0.0)
        count = tl.where(some_violate, tl.sum(counts, axis=1), count)
        mass = tl.where(some_violate, tl.sum(masses, axis=1), mass)

    weight = tl.full((BLOCK_R,), 1.0, ACC)
    if AVERAGE:
        weight = 1.0 / n_false
    value = weight * (count * (margin - f_y) + mass)
    slope = -weight * f_y * (count * rest + mass)
    if HARD:
        active = some & (a_y > a_j)
        value += logit_weight * tl.where(active, a_y - a_j, 0.0)
        slope += tl.where(active, logit_weight, 0.0)
        tl.store(hard_class + row, tl.where(active, j, -1), mask=inside)
    if SOFT:
        gap /= s
        value += logit_weight * gap
        slope += logit_weight * below_mass / s
        tl.store(false_lse + row, tl.where(some, z, float("inf")), mask=inside)
        tl.store(mean_gap + row, gap, mask=inside)
    tl.store(loss + row, tl.where(some, value, 0.0), mask=inside)
    tl.store(top_logit + row, a_j, mask=inside)
    tl.store(log_norm + row, tl.where(some, lse - tl.log(weight), float("inf")), mask=inside)
    tl.store(tau + row, row_tau, mask=inside)
    tl.store(shift + row, mass - count * f_y, mask=inside)
    tl.store(true_grad + row, tl.where(some, slope, 0.0), mask=inside)


@triton.jit
def _backward_kernel(
    grad_loss, logits, target, top_logit, log_norm, tau, shift, true_grad, hard_class, false_lse, mean_gap, share, grad,
    R, K, D, ln, lk, ld, gn, gk, gd, rn, rd, ignore_index, logit_weight_high, logit_weight_low,
    SOFT: tl.constexpr, HARD: tl.constexpr, ACC: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    inside = row < R
    n, d = row // D, row % D
    y = tl.load(target + row, mask=inside, other=ignore_index)
    row_grad = tl.load(grad_loss + n * rn + d * rd, mask=inside & (y != ignore_index), other=0.0).to(ACC)
    row_grad *= tl.load(share)
    a_j = tl.load(top_logit + row, mask=inside, other=0.0)
    row_norm = tl.load(log_norm + row, mask=inside, other=float("inf"))
    row_tau = tl.load(tau + row, mask=inside, other=float("inf"))
    row_shift = tl.load(shift + row, mask=inside, other=0.0)
    slope = row_grad * tl.load(true_grad + row, mask=inside, other=0.0)
    lc_scale = row_grad * (tl.full((BLOCK_R,), logit_weight_high, ACC) + tl.full((BLOCK_R,), logit_weight_low, ACC))
    if HARD:
        j = tl.load(hard_class + row, mask=inside, other=-1)
    if SOFT:
        z = tl.load(false_lse + row, mask=inside, other=float("inf"))
        row_gap = tl.load(mean_gap + row, mask=inside, other=0.0)
        a_y = tl.load(logits + n * ln + d * ld + y * lk, mask=inside & (y != ignore_index), other=0.0).to(ACC) - a_j
    start = logits + n * ln + d * ld
    out = grad + n * gn + d * gd
    for first in range(0, K, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        mask = inside[:, None] & (k < K)[None, :]
        a = tl.load(start[:, None] + k[None, :] * lk, mask=mask, other=-float("inf")).to(ACC) - a_j[:, None]
        f = tl.exp(a - row_norm[:, None])
        violates = tl.where(a > row_tau[:, None], 1.0, 0.0)
        g = row_grad[:, None] * f * (violates - row_shift[:, None])
        if HARD:
            g -= tl.where(k[None, :] == j[:, None], lc_scale[:, None], 0.0)
        if SOFT:
            w = tl.exp(a - z[:, None])
            below = a_y[:, None] > a
            gap = tl.where(below & (a != -float("inf")), a_y[:, None] - a, 0.0)
            g += lc_scale[:, None] * w * (gap - row_gap[:, None] - tl.where(below, 1.0, 0.0))
        g = tl.where(k[None, :] == y[:, None], slope[:, None], g)
        g = tl.where(row_norm[:, None] == float("inf"), 0.0, g)
        tl.store(out[:, None] + k[None, :] * gk, g, mask=mask)


def _two_floats(value: float) -> tuple[float, float]:
    high = float(np.float32(value))
    return high, value - high


def _accumulator(logits: Tensor) -> tuple[torch.dtype, tl.dtype]:
    return (torch.float64, tl.float64) if logits.dtype == torch.float64 else (torch.float32, tl.float32)


def _tile(K: int, forward: bool) -> dict[str, int]:
    """Rows and classes of a tile and the warps that work on it, as measured to be fast on an H200."""
    if K > _WHOLE_ROW:
        block_k, warps = (2048, 8) if forward else (4096, 16)
        return {"BLOCK_R": 1, "BLOCK_K": block_k, "num_warps": warps}
    block_k = max(16, triton.next_power_of_2(K))
    # Forward has more to reduce over a row than to load, and reduces fastest inside one warp.
    warps = 4 if block_k <= 256 else max(1, block_k // (1024 if forward else 512))
    return {"BLOCK_R": max(1, 512 // block_k), "BLOCK_K": block_k, "num_warps": warps}


def forward(logits: Tensor, target: Tensor, terms: Terms) -> tuple[Tensor, Rows]:
    """The loss, of every row or their mean, and what backward needs; logits (N, K, D), target (N, D)."""
    N, K, D = logits.shape
    dtype, acc = _accumulator(logits)
    target = target.contiguous()
    loss = torch.empty(target.shape, dtype=dtype, device=logits.device)
    rows = Rows.empty(loss, terms)
    tile = _tile(K, forward=True)
    if loss.numel():
        _forward_kernel[(triton.cdiv(N * D, tile["BLOCK_R"]),)](
            logits, target, loss, *rows[:-1], N * D, K, D, *logits.stride(),
            terms.ignore_index, *_two_floats(terms.margin), *_two_floats(terms.logit_weight),
            SOFT=terms.soft, HARD=terms.hard, AVERAGE=terms.average_classes, WHOLE=K <= _WHOLE_ROW,
            ACC=acc, SMALLEST=_SMALLEST[dtype], **tile, debug=True, sanitize_overflow=False,
        )  # fmt: skip
    if not terms.mean:
        return loss, rows._replace(share=torch.ones_like(rows.share))
    if 0 < loss.numel() <= _ROWS_OF_ONE_PROGRAM:
        mean = loss.new_empty(())
        _mean_kernel[(1,)](loss, target, mean, rows.share, N * D, terms.ignore_index, ACC=acc, BLOCK=8192, num_warps=32)
        return mean, rows
    share = 1 / (target != terms.ignore_index).sum(dtype=dtype)
    return loss.sum() * share, rows._replace(share=share.view(1))


def backward(grad_loss: Tensor, logits: Tensor, target: Tensor, rows: Rows, terms: Terms) -> Tensor:
    """Gradient with respect to the logits, in their dtype; grad_loss (N, D)."""
    N, K, D = logits.shape
    grad = torch.empty_like(logits)
    tile = _tile(K, forward=False)
    if grad.numel():
        _backward_kernel[(triton.cdiv(N * D, tile["BLOCK_R"]),)](
            grad_loss, logits, target.contiguous(), *rows, grad, N * D, K, D,
            *logits.stride(), *grad.stride(), *grad_loss.stride(),
            terms.ignore_index, *_two_floats(terms.logit_weight),
            SOFT=terms.soft, HARD=terms.hard, ACC=_accumulator(logits)[1], **tile,
        )  # fmt: skip
    return grad
