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

# Elements of a tile: enough independent loads in flight to reach memory bandwidth, few enough to stay in registers.
_TILE = 4096
_SMALLEST = {torch.float32: -3.0e38, torch.float64: -1.0e308}


@triton.jit
def _forward_kernel(
    logits, target, loss, top_logit, log_norm, tau, shift, true_grad, hard_class, false_lse, mean_gap,
    R, K, D, ln, lk, ld, ignore_index, margin_high, margin_low, logit_weight_high, logit_weight_low,
    SOFT: tl.constexpr, HARD: tl.constexpr, AVERAGE: tl.constexpr, ACC: tl.constexpr, SMALLEST: tl.constexpr,
    BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
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

    # Each lane keeps a running maximum of the false logits it saw and sums relative to it; lanes meet once, at the end.
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
        present += tl.where(a != -float("inf"), 1.0, 0.0)  # a NaN counts, so that it reaches the loss
        if SOFT:
            gap = tl.where(a_y[:, None] > a, a_y[:, None] - a, 0.0)
            gap = tl.where(a == -float("inf"), 0.0, gap)
            below = tl.where(a_y[:, None] > a, 1.0, 0.0)
            gap_sum = tl.where(higher, gap_sum * e + gap, gap_sum + e * gap)
            below_sum = tl.where(higher, below_sum * e + below, below_sum + e * below)
        total = tl.where(higher, total * e + 1.0, total + e)
        top_block = tl.where(higher, first, top_block)
        top = tl.where(higher, a, top)
    a_j = tl.max(top, axis=1)
    scale = tl.exp(top - a_j[:, None])
    s = tl.sum(total * scale, axis=1)
    s = tl.where((a_j == float("inf")) | (a_y == float("inf")), float("nan"), s)
    n_false = tl.sum(present, axis=1)
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
    second_pass = tl.max(some_violate.to(tl.int32), axis=0)
    if second_pass == 1:
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
        column = tl.where(top == a_j[:, None], top_block + lane[None, :], K)
        tl.store(hard_class + row, tl.where(active, tl.min(column, axis=1), -1), mask=inside)
    if SOFT:
        gap = tl.sum(gap_sum * scale, axis=1) / s
        value += logit_weight * gap
        slope += logit_weight * tl.sum(below_sum * scale, axis=1) / s
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
    grad_loss, logits, target, top_logit, log_norm, tau, shift, true_grad, hard_class, false_lse, mean_gap, grad,
    R, K, D, ln, lk, ld, gn, gk, gd, rn, rd, ignore_index, logit_weight_high, logit_weight_low,
    SOFT: tl.constexpr, HARD: tl.constexpr, ACC: tl.constexpr, BLOCK_R: tl.constexpr, BLOCK_K: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    inside = row < R
    n, d = row // D, row % D
    y = tl.load(target + row, mask=inside, other=ignore_index)
    row_grad = tl.load(grad_loss + n * rn + d * rd, mask=inside & (y != ignore_index), other=0.0).to(ACC)
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
    for first in range(tl.program_id(1) * BLOCK_K, K, tl.num_programs(1) * BLOCK_K):
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


def _tile(K: int) -> tuple[int, int]:
    block_k = min(triton.next_power_of_2(K), _TILE)
    return max(1, _TILE // 2 // block_k), block_k


def forward(logits: Tensor, target: Tensor, terms: Terms) -> tuple[Tensor, Rows]:
    """Loss and statistics of every row; logits (N, K, D), target (N, D)."""
    N, K, D = logits.shape
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    target = target.contiguous()
    loss = torch.empty(target.shape, dtype=dtype, device=logits.device)
    rows = Rows.empty(loss, terms)
    block_r, block_k = _tile(K)
    if loss.numel():
        _forward_kernel[(triton.cdiv(N * D, block_r),)](
            logits, target, loss, *rows, N * D, K, D, *logits.stride(),
            terms.ignore_index, *_two_floats(terms.margin), *_two_floats(terms.logit_weight),
            SOFT=terms.soft, HARD=terms.hard, AVERAGE=terms.average_classes,
            ACC=tl.float64 if dtype == torch.float64 else tl.float32, SMALLEST=_SMALLEST[dtype],
            BLOCK_R=block_r, BLOCK_K=block_k, num_warps=8 if block_k == _TILE else 4,
            debug=True, sanitize_overflow=False,
        )  # fmt: skip
    return loss, rows


def backward(grad_loss: Tensor, logits: Tensor, target: Tensor, rows: Rows, terms: Terms) -> Tensor:
    """Gradient with respect to the logits, in their dtype."""
    N, K, D = logits.shape
    grad = torch.empty_like(logits)
    target = target.contiguous()
    block_r, block_k = _tile(K)
    if grad.numel():
        _backward_kernel[(triton.cdiv(N * D, block_r), 1)](
            grad_loss, logits, target, *rows, grad, N * D, K, D, *logits.stride(), *grad.stride(), *grad_loss.stride(),
            terms.ignore_index, *_two_floats(terms.logit_weight),
            SOFT=terms.soft, HARD=terms.hard, ACC=tl.float64 if logits.dtype == torch.float64 else tl.float32,
            BLOCK_R=block_r, BLOCK_K=block_k, num_warps=8 if block_k == _TILE else 4,
        )  # fmt: skip
    return grad
