"""The PC-LC loss in closed form with PyTorch's own vectorised operations, a cache-sized block of rows at a time.

Used on the CPU, except for small means, and on devices without a kernel. The notation is that of `pc_rows.py`. Only
work that needs all classes is done by blocks; numbers per row are computed for all rows at once.
"""

import threading
from collections.abc import Iterator

import torch
from torch import Tensor

from pclc.losses.inputs import true_logits
from pclc.losses.pc_rows import Rows, Terms

# Elements of a block: its scratch copies stay in the last-level cache, and calling the operations costs little.
_BLOCK = 1 << 20
# Up to this many classes exp(a - max) beats PyTorch's softmax, which is tuned for long rows; beyond it the reverse.
_SHORT_ROW = 256
_kept = threading.local()


def forward(logits: Tensor, target: Tensor, terms: Terms) -> tuple[Tensor, Rows]:
    """Loss and statistics of every row; logits (N, K, D), target (N, D)."""
    K = logits.shape[1]
    dtype = torch.float64 if logits.dtype == torch.float64 else torch.float32
    shape, target = target.shape, target.reshape(-1)
    counted = target != terms.ignore_index
    y = torch.where(counted, target, 0)
    a_y, a_j, z, n_false, mean_gap, share_below = torch.empty(6, len(y), dtype=dtype, device=y.device)
    j = torch.empty_like(y)
    scratch = _scratch(logits, dtype)
    for block, rows in _blocks(logits):
        a, q = _copy(logits[block], scratch[0]), scratch[1][: rows.stop - rows.start]
        y_block = y[rows, None]
        a_y_block = true_logits(a[:, :K], y_block, terms.ignore_index)
        n_false[rows] = _count_false(a[:, :K], a_y_block)
        a.scatter_(1, y_block, -torch.inf)
        j_block = _largest(a)
        a_j_block = a.gather(1, j_block)
        if a.shape[1] <= _SHORT_ROW:
            z_block = torch.sub(a, a_j_block, out=q).exp_().sum(1, keepdim=True).log_()
        else:
            z_block = -torch.softmax(a, 1, out=q).gather(1, j_block).log_()
        if terms.soft:
            w = torch.sub(a, a_j_block, out=q).sub_(z_block).exp_()
            gap = a_y_block - a
            below = gap > 0
            mean_gap[rows] = gap.masked_fill_(~below | (a == -torch.inf), 0).mul_(w).sum(1)
            share_below[rows] = w.mul_(below).sum(1)
        for whole, part in ((a_y, a_y_block), (j, j_block), (a_j, a_j_block), (z, z_block)):
            whole[rows] = part[:, 0]

    # From here on logits are relative to a_j.
    some = counted & (n_false > 0)
    delta = torch.where(a_y == torch.inf, torch.nan, (a_y - a_j) - z)
    f_y, rest = torch.sigmoid(delta), torch.sigmoid(-delta)
    lse = z + torch.nn.functional.softplus(delta, threshold=50)
    excess = f_y - terms.margin
    everything = excess < 0
    tau = torch.where(everything, -torch.inf, lse + excess.log())
    count = torch.where(everything, n_false, 0)
    mass = torch.where(everything, rest, 0)
    _count_violations(logits, y, a_j, lse, tau, some & ~everything & (tau < 0), count, mass)

    weight = 1 / n_false if terms.average_classes else torch.ones_like(n_false)
    loss = weight * (count * (terms.margin - f_y) + mass)
    slope = -weight * f_y * (count * rest + mass)
    parts = Rows.empty(loss, terms)
    if terms.hard:
        active = some & (a_y > a_j)
        loss += terms.logit_weight * torch.where(active, a_y - a_j, 0)
        slope += terms.logit_weight * active.to(dtype)
        parts = parts._replace(hard_class=torch.where(active, j, -1).int())
    if terms.soft:
        loss += terms.logit_weight * mean_gap
        slope += terms.logit_weight * share_below
        parts = parts._replace(false_lse=torch.where(some, z, torch.inf), mean_gap=mean_gap.clone())
    parts = parts._replace(
        top=a_j.clone(),
        log_norm=torch.where(some, lse - weight.log(), torch.inf),
        tau=tau,
        shift=mass - count * f_y,
        true_grad=torch.where(some, slope, 0),
    )
    loss = torch.where(some, loss, 0)
    share = 1 / counted.sum(dtype=dtype) if terms.mean else torch.ones_like(parts.share)
    parts = Rows(*(part.view(shape) if len(part) == len(y) else part for part in parts))._replace(share=share.view(1))
    return loss.sum() * share if terms.mean else loss.view(shape), parts


def backward(grad_loss: Tensor, logits: Tensor, target: Tensor, rows: Rows, terms: Terms) -> Tensor:
    """Gradient with respect to the logits, in their dtype."""
    grad = torch.empty_like(logits)
    a_j, log_norm, tau, shift, true_grad, hard_class, false_lse, mean_gap, share = (part.reshape(-1) for part in rows)
    dtype = log_norm.dtype
    target = target.reshape(-1)
    g = torch.where(target == terms.ignore_index, 0, grad_loss.reshape(-1) * share).to(dtype)
    y = torch.where(target == terms.ignore_index, 0, target)
    partly = (tau > -torch.inf) & (tau < 0)  # some false classes violate the margin; the largest logit is at 0
    some_partly = bool(partly.any())
    outside = log_norm == torch.inf
    some_outside = bool(outside.any())
    factor = g * torch.where(tau == -torch.inf, 1 - shift, torch.where(partly, 1, -shift))
    true_grad = g * true_grad
    active = hard_class >= 0
    raised = torch.where(active, hard_class, 0).long()
    raised_grad = torch.where(active, -terms.logit_weight * g, 0) if terms.hard else g
    # Rows that lie in memory as they are needed are read and written in place, others through scratch copies.
    direct = logits.shape[2] == 1 and logits.dtype == dtype
    scratch = None if direct else _scratch(logits, dtype)
    for block, r in _blocks(logits):
        out = grad[block].transpose(1, 2)
        a = logits[block][:, :, 0] if scratch is None else _copy(logits[block], scratch[0])
        f = out[:, 0] if scratch is None else scratch[1][: r.stop - r.start]
        soft = None
        if terms.soft:
            gap = a.gather(1, y[r, None]) - a
            below = gap > 0
            gap.masked_fill_(~below | (a == -torch.inf), 0).sub_(mean_gap[r, None]).sub_(below.to(dtype))
            w = (a - a_j[r, None]).sub_(false_lse[r, None]).exp_()
            soft = w.mul_(gap).mul_(terms.logit_weight * g[r, None])
        some = partly[r].nonzero()[:, 0] if some_partly else None
        violates = None if some is None else a[some] - a_j[r][some, None] > tau[r][some, None]
        if a.shape[1] <= _SHORT_ROW:
            torch.sub(a, a_j[r, None], out=f).sub_(log_norm[r, None]).exp_()
        else:
            torch.softmax(a, 1, out=f)
            if terms.average_classes:  # f exp(lse - log_norm), with lse recovered from the largest entry
                f.mul_(((a.amax(1) - a_j[r]).sub_(log_norm[r]).exp_() / f.amax(1))[:, None])
        if some is not None and violates is not None:
            f[some] *= violates.to(dtype) - shift[r][some, None]
        f.mul_(factor[r, None])
        if soft is not None:
            f += soft
        if terms.hard:
            f.scatter_add_(1, raised[r, None], raised_grad[r, None])
        f.scatter_(1, y[r, None], true_grad[r, None])
        if some_outside:
            f[outside[r]] = 0
        if scratch is not None:
            out.copy_(f.view(*out.shape[:2], -1)[:, :, : out.shape[2]])
    return grad


def _count_violations(
    logits: Tensor, y: Tensor, a_j: Tensor, lse: Tensor, tau: Tensor, partly: Tensor, count: Tensor, mass: Tensor
) -> None:
    """Fill in `count` and `mass` of the rows where some false classes violate the margin and some do not."""
    if not partly.any():
        return
    for block, rows in _blocks(logits):
        some = partly[rows].nonzero()[:, 0]
        a = logits[block].transpose(1, 2).flatten(0, 1)[some].to(lse.dtype).scatter_(1, y[rows][some, None], -torch.inf)
        a -= a_j[rows][some, None]
        violates = a > tau[rows][some, None]
        count[rows][some] = violates.sum(1).to(count.dtype)
        mass[rows][some] = a.sub_(lse[rows][some, None]).exp_().mul_(violates).sum(1)


def _largest(a: Tensor) -> Tensor:
    """The index of the largest entry of each row, the first of several equal ones, as a column.

    PyTorch's argmax compares one element at a time, its amax a vector at once; so a long row is searched by pieces.
    """
    piece = _piece(a.shape[1])
    if piece == 1:
        return a.argmax(1, keepdim=True)
    pieces = a.view(len(a), -1, piece)
    best = pieces.amax(2).argmax(1)
    inside = pieces[torch.arange(len(a), device=a.device), best].argmax(1)
    return (best * piece + inside)[:, None]


def _piece(K: int) -> int:
    """The width of the pieces of a row of K classes, near the square root where that pays."""
    return 1 if K <= _SHORT_ROW else 1 << (K.bit_length() // 2)


def _count_false(a: Tensor, a_y: Tensor) -> Tensor:
    """How many false logits are not -inf."""
    count = torch.full_like(a_y[:, 0], a.shape[1] - 1)
    # The smallest entry shows at a fraction of the cost of counting that there is nothing to count.
    masked = (a.amin(1) == -torch.inf).nonzero()[:, 0]
    if len(masked):
        present = (a[masked] != -torch.inf).sum(1) - (a_y[masked, 0] != -torch.inf).long()
        count[masked] = present.to(count.dtype)
    return count


def _scratch(logits: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Room for the rows of one block, twice, each row filled up with -inf to a whole number of pieces."""
    K = logits.shape[1]
    rows = next((rows.stop for _, rows in _blocks(logits)), 0)
    width = K + -K % _piece(K)
    both = _room(2 * rows * width, dtype, logits.device).view(2, rows, width)
    both[:, :, K:] = -torch.inf
    return both[0], both[1]


def _room(numel: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory that each thread keeps for its next call, unless it is large: fresh pages cost as much as the work."""
    if device.type != "cpu" or numel > 4 * _BLOCK:
        return torch.empty(numel, dtype=dtype, device=device)
    kept: Tensor | None = getattr(_kept, str(dtype), None)
    if kept is None or len(kept) < numel:
        with torch.inference_mode(False):  # so that it can be written to in either mode
            kept = torch.empty(numel, dtype=dtype)
        setattr(_kept, str(dtype), kept)
    return kept[:numel]


def _copy(part: Tensor, scratch: Tensor) -> Tensor:
    """A (n, K, d) part of the logits as rows of `scratch`, which are a little longer than K."""
    n, K, d = part.shape
    rows = scratch[: n * d]
    rows.view(n, d, -1)[:, :, :K].copy_(part.transpose(1, 2))
    return rows


def _blocks(logits: Tensor) -> Iterator[tuple[tuple[slice, slice, slice], slice]]:
    """Parts of (N, K, D) logits that fit the cache, each with the range of its rows among all N * D."""
    N, K, D = logits.shape
    size = _BLOCK if logits.device.type == "cpu" else logits.numel()
    deep = max(1, min(D, size // K))
    many = max(1, size // max(1, K * D))
    everything = slice(None)
    for n in range(0, N, many):
        for d in range(0, D, deep):
            first = n * D + d
            last = min(N, n + many) * D if deep == D else n * D + min(D, d + deep)
            yield (slice(n, n + many), everything, slice(d, d + deep)), slice(first, last)
