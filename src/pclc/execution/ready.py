"""A model made ready for many passes and input gradients: the same function up to rounding, in faster kernels."""

import copy
import math
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pclc.execution.settings import Execution

# Tensor cores work on eight channels of bf16 at a time; padding pays where they have much to do.
_CHANNELS_AT_A_TIME = 8
_MUCH = 32

# The largest matrix, in numbers, that a convolution of few channels becomes: those of LeNet-5 on 28 x 28 have 3.7 and
# 1.9 million. And how many one keeps, of images of several sizes.
_LARGEST_MATRIX = 2**22
_MATRICES = 4


def made_ready(model: nn.Module, execution: Execution) -> nn.Module:
    """The model with layers that run faster, and a last one that rounds less.

    - BatchNorm is folded into the convolution before it, and on CUDA ReLU into the one after which it comes: each is a
      pass over memory less.
    - Weights are laid out as the images are.
    - Convolutions of few channels get a gradient, or an input, for which cuDNN has better kernels; on small images and
      CUDA they become products with a matrix.
    - The last linear layer, in the order of `model.modules()`, stays in float32 where autocast would take less: attacks
      compare logits that are nearly equal.

    Only what is safe to change from outside is changed: layers in eval mode that occur once, have no hooks, and the
    `forward` of their class. One is folded into a convolution where both are in a row in a plain `nn.Sequential`; a
    BatchNorm also where the module's class names both in `norms_after`, a dictionary from each convolution to the
    BatchNorm to which its output goes, and nowhere else. What is changed is copied, all else is shared with the model,
    and where nothing is to be changed the model itself comes back. There is no gradient of the weights. Whoever uses it
    looks once whether it gives what the model gives: code outside may call the layers one by one.

    Example:
        >>> model = nn.Sequential(nn.Conv2d(16, 16, 3), nn.BatchNorm2d(16), nn.ReLU()).eval()
        >>> made_ready(model, Execution(device="cpu"))
        Sequential(
          (0): Conv2d(16, 16, kernel_size=(3, 3), stride=(1, 1))
          (1): Identity()
          (2): ReLU()
        )
    """
    uses = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    linear = [module for module in model.modules() if _is_plain(module, nn.Linear, uses)]
    last = linear[-1] if linear and execution.resolved_precision != "fp32" else None
    return _ready(model, execution, uses, last)


def _ready(module: nn.Module, execution: Execution, uses: Counter[int], last: nn.Module | None) -> nn.Module:
    if _is_plain(module, nn.Conv2d, uses):
        return _fast(module, execution)  # type: ignore[arg-type]
    if module is last:
        return _twin(module, _Float32Linear)
    children = dict(module.named_children())
    ready = {name: _ready(child, execution, uses, last) for name, child in children.items()}
    for name, after in _norms_after(module):
        conv, norm = children.get(name, module), children.get(after, module)
        plain = _is_plain(conv, nn.Conv2d, uses) and _is_plain(norm, nn.BatchNorm2d, uses)
        if plain and _is_fixed(norm) and not conv.training:
            ready[name] = _fast(fuse_conv_bn_eval(conv, norm), execution)  # type: ignore[arg-type, type-var]
            ready[after] = nn.Identity()
    if type(module) is nn.Sequential and _chooses_kernels(execution):
        _fold_relu(module, ready, uses)
    if all(ready[name] is child for name, child in children.items()):
        return module
    # Not by `copy.copy` and assignment, of which modules may make something of their own: a compiled one hands what is
    # assigned on to the module that it was made of.
    twin: nn.Module = object.__new__(type(module))
    twin.__dict__.update(module.__dict__)
    twin.__dict__["_modules"] = {**module._modules, **ready}
    return twin


def _chooses_kernels(execution: Execution) -> bool:
    """Whether kernels that only CUDA has are chosen here, and not by a compiler."""
    return execution.torch_device.type == "cuda" and not execution.compile


def _fold_relu(module: nn.Sequential, ready: dict[str, nn.Module], uses: Counter[int]) -> None:
    """Have convolutions do the ReLU that follows them, at once or after a BatchNorm that is gone."""
    before: str | None = None  # the convolution whose output comes here
    for name, layer in module._modules.items():
        if layer is None or uses[id(layer)] > 1:
            before = None
        elif before is not None and _is_plain(layer, nn.ReLU, uses):
            ready[before] = _twin(ready[before], _ConvReLU)
            ready[name], before = nn.Identity(), None
        elif type(layer) is not nn.BatchNorm2d or type(ready[name]) is not nn.Identity:  # it was not folded
            before = name if _is_plain(layer, nn.Conv2d, uses) and _takes_relu(ready[name]) else None


def _takes_relu(layer: nn.Module) -> bool:
    """Whether cuDNN's kernel with a ReLU does the same; not the kinds of convolution below, which have kernels too."""
    if type(layer) is not nn.Conv2d:
        return False
    return layer.bias is not None and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _norms_after(module: nn.Module) -> Iterable[tuple[str, str]]:
    """Names of children of which the second gets all that the first gives. Of a subclass that is not known."""
    if type(module) is nn.Sequential:
        return pairwise(module._modules)  # not `named_children`, which names a layer in several places once
    pairs = vars(type(module)).get("norms_after")
    return pairs.items() if isinstance(pairs, dict) else ()


def _is_plain(module: nn.Module, kind: type[nn.Module], uses: Counter[int]) -> bool:
    """Whether calling it does what its kind says and nothing else, in one place of the model."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    is_patched = "forward" in vars(module)  # perhaps for another gradient, which nobody compares
    return type(module) is kind and uses[id(module)] == 1 and not any(hooks) and not is_patched


def _is_fixed(norm: nn.Module) -> bool:
    return not norm.training and isinstance(norm.running_mean, Tensor)


def _fast(conv: nn.Conv2d, execution: Execution) -> nn.Module:
    few, padding = conv.in_channels < _CHANNELS_AT_A_TIME, conv.padding
    if conv.groups > 1 or conv.padding_mode != "zeros" or isinstance(padding, str):
        return _twin(conv, nn.Conv2d, weight=_laid_out(conv.weight, execution))
    if few and conv.out_channels >= _MUCH and execution.resolved_precision == "bf16":
        weight = F.pad(conv.weight, (0, 0, 0, 0, 0, _CHANNELS_AT_A_TIME - conv.in_channels))
        return _twin(conv, _MoreChannels, more=_laid_out(weight, execution))
    reach = [size - 1 - pad for size, pad in zip(conv.kernel_size, padding, strict=True)]
    if few and conv.out_channels < _MUCH and conv.stride == conv.dilation == (1, 1) and min(reach) >= 0:
        kind = _AsMatrix if _chooses_kernels(execution) else _FewChannels
        twin = _twin(conv, kind, turned=conv.weight.detach().flip(2, 3).transpose(0, 1).contiguous())
        twin.reach, twin.matrices = reach, {}  # type: ignore[assignment]
        return twin
    return _twin(conv, nn.Conv2d, weight=_laid_out(conv.weight, execution))


def _laid_out(weight: Tensor, execution: Execution) -> Tensor:
    return weight.detach().contiguous(memory_format=execution.memory_format)


def _twin(layer: nn.Module, kind: type[nn.Module], **weights: Tensor) -> nn.Module:
    """The layer with weights of its own, as another kind of one: a model's code may look at its attributes."""
    twin = copy.copy(layer)
    twin.__class__ = kind
    own = {name: nn.Parameter(weight, requires_grad=False) for name, weight in weights.items()}
    twin._parameters = {**layer._parameters, **own}
    return twin


class _Float32Linear(nn.Linear):
    """A linear layer that autocast leaves in the precision of its weights."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            return super().forward(x.to(self.weight.dtype))


class _ConvReLU(nn.Conv2d):
    """A convolution with bias and ReLU in one kernel."""

    def forward(self, x: Tensor) -> Tensor:
        geometry = self.stride, self.padding, self.dilation, self.groups
        y: Tensor = _RectifiedConvolution.apply(x, self.weight, self.bias, geometry)  # type: ignore[no-untyped-call]
        return y


class _MoreChannels(nn.Conv2d):
    """A convolution that adds channels of zeros to its input, for the weights `more`."""

    more: Tensor

    def forward(self, x: Tensor) -> Tensor:
        missing = self.more.shape[1] - self.in_channels
        y: Tensor = self._conv_forward(F.pad(x, (0, 0, 0, 0, 0, missing)), self.more, self.bias)
        return y


class _FewChannels(nn.Conv2d):
    """A convolution whose input gradient is a convolution too, with the weights turned round.

    For few channels cuDNN's kernels of the gradient are several times slower than those of the forward pass.
    """

    turned: Tensor
    reach: list[int]

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
            x, self.weight, self.bias, self.padding, self.turned, self.reach
        )
        return y


class _AsMatrix(_FewChannels):
    """A convolution as one product with a matrix that is mostly zeros.

    Tensor cores are done with all of it before kernels of convolutions, for which one and six channels are too few.
    """

    matrices: dict[tuple[torch.Size, torch.dtype, torch.device], tuple[Tensor, Tensor, Tensor | None]]

    def forward(self, x: Tensor) -> Tensor:
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

        None for one size too many. None is thrown away, since a CUDA graph may read it.
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
        # quarter of the largest number, because rounding to TF32 may make infinity of it. In fp16 it is an overflow,
        # which whoever uses that has to see.
        if grad.dtype != torch.float16:
            large = torch.finfo(grad.dtype).max / 4
            grad = grad.nan_to_num(0.0, large, -large)
        return F.linear(grad, back).to(ctx.dtype), None, None, None


class _RectifiedConvolution(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, geometry: tuple[Any, ...]) -> Tensor:
        dtype = _autocast_dtype(x)
        ctx.dtype, ctx.geometry = x.dtype, geometry
        x, weight, bias = x.to(dtype), weight.to(dtype), bias.to(dtype)
        y = torch.cudnn_convolution_relu(x, weight, bias, *geometry)
        ctx.save_for_backward(x, weight, y)
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (x, weight, y), (grad,) = ctx.saved_tensors, grads
        stride, padding, dilation, groups = ctx.geometry
        through = torch.ops.aten.threshold_backward(grad, y, 0)
        back = torch.ops.aten.convolution_backward(
            through, x, weight, None, stride, padding, dilation, False, [0, 0], groups, [True, False, False]
        )
        return back[0].to(ctx.dtype), None, None, None


def _autocast_dtype(x: Tensor) -> torch.dtype:
    """What autocast makes of images: it leaves float64 alone."""
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
