"""What the Square attack tries: where it starts and how it goes on, in Linf and in L2; images are (N, C, H, W)."""

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks import random
from pclc.attacks.balls import row_norms
from pclc.attacks.types import Norm

_HALVINGS = (10, 50, 200, 500, 1000, 2000, 4000, 6000, 8000)  # of the share of pixels, in queries of 10,000
_TINY = 1e-12

Draws = tuple[Tensor, ...]  # for several queries (Q, N, ...), for one (N, ...)


class Moves(NamedTuple):
    """What differs between the norms."""

    numbers: int  # uniform random numbers that a query needs
    repeats: bool  # proposals are often the best point again, about which the model need not be asked
    side: Callable[[float], int]  # of the square that covers a share of the pixels
    start: Callable[[Tensor, int, Tensor, int], Tensor]  # x, seed, index, attempt to the first point
    draw: Callable[[Tensor, Tensor], Draws]  # from uniforms (Q, N, numbers) and sides (Q, 1)
    propose: Callable[[Tensor, Tensor, int, Draws], Tensor]  # x, the best so far, side, draws to the next point


def share(query: int, queries: int, p_init: float) -> float:
    """The share of the pixels that is changed, halved nine times on the way of so many queries.

    Example:
        >>> [share(query, 5000, 0.8) for query in (0, 5, 6, 4999)]
        [0.8, 0.8, 0.4, 0.0015625]
        >>> share(4999, 10000, 0.8)
        0.00625
    """
    progress = int(query / queries * 10000)
    return p_init * 0.5 ** sum(progress > mark for mark in _HALVINGS)


def moves(norm: Norm, eps: float, shape: tuple[int, int, int]) -> Moves:
    """The moves for images of a shape (C, H, W)."""
    return (_linf if norm == "Linf" else _l2)(eps, *shape)


def _corner(u: Tensor, side: Tensor, length: int) -> Tensor:
    """Where a stretch of `side` begins: a uniform place of [0, length - side], rounded; 0 where it does not fit.

    The first and the last place come half as often as one between. Those come as often as in the authors' code, which
    never takes the last; the paper takes each equally often, and thereby wastes more queries on an empty border.
    """
    return (u * (length - side).clamp(min=0)).round().long()


def _covered(corner: Tensor, side: Tensor, length: int) -> Tensor:
    """(..., length) flags: the places that a stretch of `side` from `corner` covers."""
    corner, place = corner.unsqueeze(-1), torch.arange(length, device=corner.device)
    return (place >= corner) & (place < corner + side.unsqueeze(-1))


def _sign(u: Tensor) -> Tensor:
    """-1 or 1 from uniform numbers, in their precision."""
    return 1 - 2 * (u < 0.5).to(u.dtype)


def _window(rows: Tensor, columns: Tensor) -> Tensor:
    """(N, 1, H, W) flags of the rectangle with these rows (N, H) and columns (N, W)."""
    return rows[:, None, :, None] & columns[:, None, None, :]


def _linf(eps: float, C: int, H: int, W: int) -> Moves:
    """Every pixel is at one end of its interval. A square takes its pixels to one end, at random for each channel."""

    def side(share: float) -> int:
        return max(round(math.sqrt(share * H * W)), 1)

    def start(x: Tensor, seed: int, index: Tensor, attempt: int) -> Tensor:
        return (x + eps * random.signs((C, 1, W), seed, index, draw=attempt, dtype=x.dtype)).clamp(0, 1)

    def draw(u: Tensor, sides: Tensor) -> Draws:
        rows = _covered(_corner(u[..., 0], sides, H), sides, H)
        columns = _covered(_corner(u[..., 1], sides, W), sides, W)
        return rows, columns, eps * _sign(u[..., 2:, None, None])

    def propose(x: Tensor, x_best: Tensor, side: int, draws: Draws) -> Tensor:
        rows, columns, step = draws
        return torch.where(_window(rows, columns), (x + step).clamp_(0, 1), x_best)

    return Moves(2 + C, C == 1, side, start, draw, propose)


def _l2(eps: float, C: int, H: int, W: int) -> Moves:
    """A bump in one window, paid for with what another window has and with what the box has left over."""

    def side(share: float) -> int:
        return max(round(math.sqrt(share * H * W)), 3) // 2 * 2 + 1

    @cache
    def table(side: int, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Both bumps (2, h, w) with a border of zeros, for the places outside of the window."""
        h, w = min(side, H), min(side, W)
        both = torch.stack([bump(h, w), bump(w, h).T])
        return torch.nn.functional.pad(both, (1, 1, 1, 1)).to(device, dtype)

    def start(x: Tensor, seed: int, index: Tensor, attempt: int) -> Tensor:
        tile = max(min(H, W) // 5, 1)
        margin = (min(H, W) - 5 * tile) // 2 if min(H, W) >= 5 else 0
        high, wide = (H - margin) // tile, (W - margin) // tile
        u = random.uniform((high, wide, 1 + C), seed, index, draw=attempt, dtype=x.dtype)

        def spread(length: int, count: int) -> tuple[Tensor, Tensor]:
            """For every place of an axis: its tile, and its place in the table; 0 is the table's border."""
            place = torch.arange(length, device=x.device) - margin
            within = (place >= 0) & (place < count * tile)
            return (place // tile).clamp(0, count - 1), torch.where(within, place % tile + 1, 0)

        (tile_row, row), (tile_column, column) = spread(H, high), spread(W, wide)
        u = u[:, tile_row][:, :, tile_column]  # (N, H, W, 1 + C)
        bumps = table(tile, x.device, x.dtype)[(u[..., 0] < 0.5).long(), row[:, None], column]
        delta = bumps[:, None] * _sign(u[..., 1:]).movedim(-1, 1)
        return (x + eps * delta / (row_norms(delta) + _TINY)).clamp(0, 1)

    def draw(u: Tensor, sides: Tensor) -> Draws:
        corners = [_corner(u[..., axis], sides, (H, W)[axis % 2]) for axis in range(4)]
        covered = [_covered(corner, sides, (H, W)[axis % 2]) for axis, corner in enumerate(corners)]
        return *covered, corners[0], corners[1], (u[..., 4] < 0.5).long(), _sign(u[..., 5:, None, None])

    def propose(x: Tensor, x_best: Tensor, side: int, draws: Draws) -> Tensor:
        *covered, top, left, turned, signs = draws
        first, second = _window(covered[0], covered[1]), _window(covered[2], covered[3])
        row, column = (
            (torch.arange(length, device=x.device) - corner[:, None] + 1).clamp(0, min(side, length) + 1)
            for length, corner in ((H, top), (W, left))
        )
        bumps = table(side, x.device, x.dtype)[turned[:, None, None], row[:, :, None], column[:, None, :]]
        delta = x_best - x
        inside, elsewhere = delta * first, delta * ~(first | second)
        energy, kept = delta.square().sum((2, 3), keepdim=True), elsewhere.square().sum((2, 3), keepdim=True)
        # Each channel of the window may use what both windows held, and its part of what the box had cut off.
        unused = (eps**2 - energy.sum(1, keepdim=True)).clamp(min=0) / C
        new = signs * bumps[:, None] + inside / (_norms(inside) + _TINY)
        new = new * ((unused + energy - kept).clamp(min=0).sqrt() / (_norms(new) + _TINY))
        delta = elsewhere + new
        return (x + eps * delta / (row_norms(delta) + _TINY)).clamp(0, 1)

    return Moves(5 + C, False, side, start, draw, propose)


def _norms(images: Tensor) -> Tensor:
    """The Euclidean norm of every channel, (N, C, 1, 1)."""
    norms: Tensor = torch.linalg.vector_norm(images, dim=(2, 3), keepdim=True)
    return norms


def bump(height: int, width: int) -> Tensor:
    r"""A positive hill in the upper and a negative one in the lower half of a window, (height, width), of norm 1.

    A hill of a x b pixels is $\sum_{k \geq m} (k + 1)^{-2}$ at distance m from its centre in the largest norm, up to
    the hill's largest distance, and has norm 1 before the two are put together.

    Example:
        >>> bump(2, 3)
        tensor([[ 0.1361,  0.6804,  0.1361],
                [-0.1361, -0.6804, -0.1361]])
    """

    def hill(a: int, b: int) -> Tensor:
        size = max(a // 2, b // 2) + 1
        heights = torch.arange(1, size + 1, dtype=torch.float64).pow(-2).flip(0).cumsum(0).flip(0)
        row, column = (torch.arange(length) - length // 2 for length in (a, b))
        values = heights[torch.maximum(row.abs()[:, None], column.abs())]
        unit: Tensor = values / values.norm()
        return unit

    half = height // 2
    both = torch.cat([hill(half, width)] * (half > 0) + [-hill(height - half, width)])
    unit: Tensor = (both / both.norm()).float()
    return unit
