"""Max-pooling of 2 x 2 pixels after a ReLU as two Triton kernels, for images that are channels last.

PyTorch's kernels write an index of eight bytes for every output, and read it again. These search a second time for the
largest of the four, and their backward pass includes the ReLU.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCK = 1024


def pool(y: Tensor) -> Tensor:
    """The largest of each 2 x 2 pixels of (N, C, H, W); for odd sizes the last row or column is ignored."""
    n, c, h, w = y.shape
    out = torch.empty(n, c, h // 2, w // 2, dtype=y.dtype, device=y.device, memory_format=torch.channels_last)
    if out.numel():
        with torch.cuda.device_of(y):  # type: ignore[no-untyped-call]
            _pool_kernel[(triton.cdiv(out.numel(), _BLOCK),)](y, out, h, w, c, out.numel(), BLOCK=_BLOCK)
    return out


def pool_gradient(grad: Tensor, y: Tensor) -> Tensor:
    """The gradient of the ReLU's input: the pooled one goes to the first of the largest pixels, if it is positive.

    Args:
        grad: of `pool(y)`.
        y: what the ReLU gave, channels last.
    """
    _, c, h, w = y.shape
    out = torch.empty_like(y) if h % 2 == w % 2 == 0 else torch.zeros_like(y)
    if grad.numel():
        grad = grad.contiguous(memory_format=torch.channels_last)
        with torch.cuda.device_of(y):  # type: ignore[no-untyped-call]
            _gradient_kernel[(triton.cdiv(grad.numel(), _BLOCK),)](grad, y, out, h, w, c, grad.numel(), BLOCK=_BLOCK)
    return out


@triton.jit
def _first_of_four(i, H, W, C):
    """Where the first of the four pixels of the i-th output begins; the others are one and W pixels further."""
    pixel = i // C
    column = pixel % (W // 2)
    row = pixel // (W // 2)
    image = row // (H // 2)
    return ((image * H + row % (H // 2) * 2) * W + column * 2) * C + i % C


@triton.jit
def _pool_kernel(y, out, H, W, C, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    first = y + _first_of_four(i, H, W, C)
    a, b = tl.load(first, inside), tl.load(first + C, inside)
    c, d = tl.load(first + W * C, inside), tl.load(first + W * C + C, inside)
    tl.store(out + i, _largest(_largest(a, b), _largest(c, d)), inside)


@triton.jit
def _gradient_kernel(grad, y, out, H, W, C, total, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = i < total
    start = _first_of_four(i, H, W, C)
    first = y + start
    a, b = tl.load(first, inside), tl.load(first + C, inside)
    c, d = tl.load(first + W * C, inside), tl.load(first + W * C + C, inside)
    top = _largest(_largest(a, b), _largest(c, d))
    none = tl.zeros_like(top)
    given = tl.where(top <= 0, none, tl.load(grad + i, inside))
    of_a = a == top
    of_b = (b == top) & ~of_a
    of_c = (c == top) & ~of_a & ~of_b
    of_d = ~of_a & ~of_b & ~of_c  # also where the largest is NaN: its gradient must show somewhere
    to = out + start
    tl.store(to, tl.where(of_a, given, none), inside)
    tl.store(to + C, tl.where(of_b, given, none), inside)
    tl.store(to + W * C, tl.where(of_c, given, none), inside)
    tl.store(to + W * C + C, tl.where(of_d, given, none), inside)


@triton.jit
def _largest(a, b):
    """NaN where one of them is, as in PyTorch."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
