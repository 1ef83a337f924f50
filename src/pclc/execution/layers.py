"""Layers with the results of torch's layers, in kernels that are faster for images and their gradients.

`ready.py` decides where one replaces a layer. None has a gradient of its weights.
"""

import copy
import math
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# The most entries of a matrix that replaces a convolution of few channels: those of LeNet-5 on 28 x 28 have 3.7 and 1.9
# million. And how many matrices one layer keeps, for images of several sizes.
_LARGEST_MATRIX = 2**22
_MATRICES = 4


def as_kind(layer: nn.Module, kind: type[nn.Module], **weights: Tensor) -> nn.Module:
    """A copy of the layer as another kind, with weights of its own; it keeps the attributes that code may look at."""
    twin = copy.copy(layer)
    twin.__class__ = kind
    own = {name: nn.Parameter(weight, requires_grad=False) for name, weight in weights.items()}
    twin._parameters = {**layer._parameters, **own}
    return twin


class Float32Linear(nn.Linear):
    """A linear layer that autocast leaves in the precision of its weights."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., in) to (..., out)."""
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


class MoreChannels(nn.Conv2d):
    """A convolution that adds channels of zeros to its input, for the weights `more`."""

    more: Tensor

    def forward(self, x: Tensor) -> Tensor:
        """Images to the convolution's output."""
        missing = self.more.shape[1] - self.in_channels
        y: Tensor = self._conv_forward(F.pad(x, (0, 0, 0, 0, 0, missing)), self.more, self.bias)
        return y


class ConvReLU(nn.Conv2d):
    """A convolution with bias and ReLU in one kernel; `more` has weights for added channels, if it is there."""

    pools = False
    cast: dict[torch.dtype, tuple[Tensor, Tensor]]  # weights and bias, which do not change

    def forward(self, x: Tensor) -> Tensor:
        """Images to the positive part of the convolution's output, pooled in the subclass."""
        dtype = _autocast_dtype(x)
        if dtype not in self.cast:
            weight = self._parameters.get("more", self.weight)
            assert weight is not None
            assert self.bias is not None
            self.cast[dtype] = weight.detach().to(dtype), self.bias.detach().to(dtype)
        geometry = self.stride, self.padding, self.dilation, self.groups
        y: Tensor = _RectifiedConvolution.apply(  # type: ignore[no-untyped-call]
            x, *self.cast[dtype], geometry, pooling() if self.pools else None
        )
        return y


class ConvReLUPool(ConvReLU):
    """The same with max-pooling of 2 x 2 pixels after it."""

    pools = True


@cache
def pooling() -> ModuleType | None:
    """The kernels of max-pooling, None where Triton is not installed."""
    try:
        from pclc.execution import pool_triton
    except ImportError:
        return None
    return pool_triton


class FewChannels(nn.Conv2d):
    """A convolution whose input gradient is a convolution too, with the weights turned round.

    For few channels cuDNN's kernels of the gradient are several times slower than those of the forward pass.
    """

    turned: Tensor
    reach: list[int]

    def forward(self, x: Tensor) -> Tensor:
        """Images to the convolution's output."""
        y: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, self.padding, self.turned, self.reach
        )
        return y


class AsMatrix(FewChannels):
    """A convolution as one product with a matrix that is mostly zeros.

    Tensor cores compute all of it faster than convolution kernels, for which one or six channels are too few.
    """

    matrices: dict[tuple[torch.Size, torch.dtype, torch.device], tuple[Tensor, Tensor, Tensor | None]]

    def forward(self, x: Tensor) -> Tensor:
        """The same, by a product where the matrix is not too large."""
        sizes = zip(x.shape[2:], self.kernel_size, self.reach, strict=True)
        shape = self.out_channels, *(size + kernel - 1 - 2 * reach for size, kernel, reach in sizes)
        pixels = x.shape[1:].numel()
        largest = pixels * max(pixels, math.prod(shape))  # pixels squared are needed on the way
        found = self._matrix(x) if largest <= _LARGEST_MATRIX else None
        if found is None:
            return super().forward(x)
        y: Tensor = _Product.apply(x.flatten(1), *found)  # type: ignore[no-untyped-call]
        return y.view(-1, *shape)

    def _matrix(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor | None] | None:
        """(out, in) and its transpose, each as tensor cores like it, and the bias of every output; made once.

        None where there are too many sizes already: no matrix is ever dropped, since a CUDA graph may read it.
        """
        dtype = _autocast_dtype(x)
        key = x.shape[1:], dtype, x.device
        if key not in self.matrices:
            if len(self.matrices) >= _MATRICES:
                return None
            with torch.no_grad():
                # What each pixel alone gives. float64, because algorithms of convolutions round on the way.
                count = x.shape[1:].numel()
                pixels = torch.eye(count, dtype=torch.float64, device=x.device).view(-1, *x.shape[1:])
                found = F.conv2d(pixels, self.weight.double(), padding=self.padding)
                back = found.flatten(1).to(dtype)
                bias = None if self.bias is None else self.bias.to(dtype).repeat_interleave(found[0, 0].numel())
                self.matrices[key] = back.t().contiguous(), back, bias
        return self.matrices[key]


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, there: Tensor, back: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(back)
        ctx.dtype = x.dtype
        return F.linear(x.to(there.dtype), there, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (back,), (grad,) = ctx.saved_tensors, grads
        grad = grad.to(back.dtype)
        # The matrix has a zero for every pixel that an output does not see, and zero times infinity would be NaN. A
        # quarter of the largest number, because rounding to TF32 may make it infinite. In fp16 infinity is an overflow,
        # which the caller has to see.
        if grad.dtype != torch.float16:
            large = torch.finfo(grad.dtype).max / 4
            grad = grad.nan_to_num(0.0, large, -large)
        return F.linear(grad, back).to(ctx.dtype), None, None, None


class _RectifiedConvolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, geometry: tuple[Any, ...], pooling: ModuleType | None
    ) -> Tensor:
        ctx.dtype, ctx.channels, ctx.geometry, ctx.pooling = x.dtype, x.shape[1], geometry, pooling
        groups = geometry[-1]
        missing = weight.shape[1] * groups - x.shape[1]
        x = F.pad(x.to(weight.dtype), (0, 0, 0, 0, 0, missing)) if missing else x.to(weight.dtype)
        y = torch.cudnn_convolution_relu(x, weight, bias, *geometry)
        if pooling:
            y = y.contiguous(memory_format=torch.channels_last)
        ctx.save_for_backward(x, weight, y)
        return pooling.pool(y) if pooling else y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, y), (grad,) = ctx.saved_tensors, grads
        stride, padding, dilation, groups = ctx.geometry
        if ctx.pooling:
            through = ctx.pooling.pool_gradient(grad, y)
        else:
            through = torch.ops.aten.threshold_backward(grad, y, 0)
        back = torch.ops.aten.convolution_backward(
            through, x, weight, None, stride, padding, dilation, False, [0, 0], groups, [True, False, False]
        )
        return back[0][:, : ctx.channels].to(ctx.dtype), None, None, None, None


def _autocast_dtype(x: Tensor) -> torch.dtype:
    """The dtype to which autocast casts images: it leaves float64 alone."""
    kind = x.device.type
    return torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) and x.dtype != torch.float64 else x.dtype


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, padding: Any, turned: Tensor, reach: list[int]
    ) -> Tensor:
        ctx.save_for_backward(turned)
        ctx.reach, ctx.dtype = reach, x.dtype
        return F.conv2d(x, weight, bias, padding=padding)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (turned,), (grad,) = ctx.saved_tensors, grads
        return F.conv2d(grad, turned.to(grad.dtype), padding=ctx.reach).to(ctx.dtype), None, None, None, None, None
