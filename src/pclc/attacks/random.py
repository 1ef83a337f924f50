r"""Random numbers that belong to the example: a pure function of (seed, index, step, draw).

Philox-4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011) turns a key and a counter into
four words of 32 bits. Here the key is the seed and the counter is (block of elements, index of the example, step,
draw), so that no number depends on the batch, its order or what was drawn before, and no generator has a state to
restore. It is integer arithmetic throughout: uniforms and signs are the same bits on every device, normals the same up
to the rounding of log and cos.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

_LOW = 0xFFFFFFFF
_ROUNDS = 10
_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
_WEYL = (0x9E3779B9, 0xBB67AE85)

Counter = int | Tensor


def philox(counter: tuple[Tensor, Tensor, Tensor, Tensor], key: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Philox-4x32-10: four int64 tensors that hold 32-bit words, and a key of 64 bits, to four of the same kind.

    Example:
        >>> zero = torch.zeros((), dtype=torch.int64)
        >>> [hex(word) for word in philox((zero, zero, zero, zero), key=0)]
        ['0x6627e8d5', '0xe169c58d', '0xbc57ac4c', '0x9b00dbd8']
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key & _LOW, (key >> 32) & _LOW
    for _ in range(_ROUNDS):
        # int64 wraps around: the product's 64 bits are right, and the mask undoes the sign that >> copies.
        left, right = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (right >> 32 & _LOW) ^ c1 ^ k0, right & _LOW, (left >> 32 & _LOW) ^ c3 ^ k1, left & _LOW
        k0, k1 = (k0 + _WEYL[0]) & _LOW, (k1 + _WEYL[1]) & _LOW
    return c0, c1, c2, c3


def _words(numel: int, seed: int, index: Tensor, step: int, draw: Counter) -> Tensor:
    """At least `numel` 32-bit words for each example, as int64 of shape (N, M), M a multiple of four."""
    index = index.unsqueeze(1)
    block = torch.arange((numel + 3) // 4, device=index.device)
    steps = torch.full_like(block, step)
    draws = draw.unsqueeze(1) if isinstance(draw, Tensor) else torch.full_like(index, draw)
    return torch.stack(philox((block, index, steps, draws), seed), dim=2).flatten(1)


def uniform(
    shape: Sequence[int], seed: int, index: Tensor, step: int = 0, draw: Counter = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Numbers in [0, 1), multiples of 2^-24, of shape (N, *shape) for N indices; the same in float32 and float64.

    Args:
        shape: of one example.
        seed: in [0, 2^64).
        index: (N,) int64 in [0, 2^32), the examples' places in the data set.
        step: in [0, 2^32).
        draw: in [0, 2^32), further numbers for the same step; an int, or (N,) int64.
        dtype: torch.float32 or torch.float64.

    Example:
        >>> three = uniform((2,), seed=0, index=torch.tensor([0, 1, 2]))
        >>> torch.equal(three[2:], uniform((2,), seed=0, index=torch.tensor([2])))
        True
    """
    words = _words(math.prod(shape), seed, index, step, draw)[:, : math.prod(shape)]
    return ((words >> 8).to(dtype) * 2.0**-24).reshape(len(index), *shape)


def normal(
    shape: Sequence[int], seed: int, index: Tensor, step: int = 0, draw: Counter = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Standard normal numbers of shape (N, *shape), by Box and Muller; arguments as for `uniform`."""
    numel = math.prod(shape)
    u = uniform((2 * numel,), seed, index, step, draw, dtype)
    radius = (-2 * (1 - u[:, :numel]).log()).sqrt()
    return (radius * (2 * math.pi * u[:, numel:]).cos()).reshape(len(index), *shape)


def signs(
    shape: Sequence[int], seed: int, index: Tensor, step: int = 0, draw: Counter = 0, dtype: torch.dtype = torch.float32
) -> Tensor:
    """-1 or 1 with equal probability, of shape (N, *shape): 32 to a word; arguments as for `uniform`."""
    numel = math.prod(shape)
    words = _words((numel + 31) // 32, seed, index, step, draw)
    bits = (words.unsqueeze(2) >> torch.arange(32, device=words.device)) & 1
    return (2 * bits.flatten(1)[:, :numel] - 1).to(dtype).reshape(len(index), *shape)
