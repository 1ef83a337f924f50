"""A model made ready for many passes and input gradients: the same function up to rounding, in faster kernels."""

import copy
from collections import Counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pclc.execution.settings import Execution

# Tensor cores work on eight channels of bf16 at a time; padding pays where they have much to do.
_CHANNELS_AT_A_TIME = 8
_MUCH = 32


def made_ready(model: nn.Module, execution: Execution) -> nn.Module:
    """The model with convolutions that run faster.

    - BatchNorm is folded into the convolution before it, which is a pass over memory less.
    - Weights are laid out as the images are.
    - Convolutions of few channels get a gradient, or an input, for which cuDNN has better kernels.

    Only what is safe to change from outside is changed: a convolution or a BatchNorm in eval mode that occurs once and
    has no hooks, both in a row in a plain `nn.Sequential`. What is changed is copied, all else is shared with the
    model, and where nothing is to be changed the model itself comes back. There is no gradient of the weights.

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
    return _ready(model, execution, uses)


def _ready(module: nn.Module, execution: Execution, uses: Counter[int]) -> nn.Module:
    if _is_plain(module, nn.Conv2d, uses):
        return _fast(module, execution)  # type: ignore[arg-type]
    children = dict(module.named_children())
    ready = {name: _ready(child, execution, uses) for name, child in children.items()}
    if type(module) is nn.Sequential:
        for (name, conv), (after, norm) in zip(children.items(), list(children.items())[1:], strict=False):
            if _is_plain(conv, nn.Conv2d, uses) and _is_plain(norm, nn.BatchNorm2d, uses) and _is_fixed(norm):
                ready[name] = _fast(fuse_conv_bn_eval(conv, norm), execution)  # type: ignore[arg-type, type-var]
                ready[after] = nn.Identity()
    if all(ready[name] is child for name, child in children.items()):
        return module
    twin = copy.copy(module)
    twin._modules = {**module._modules, **ready}
    return twin


def _is_plain(module: nn.Module, kind: type[nn.Module], uses: Counter[int]) -> bool:
    """Whether calling it does what its kind says and nothing else, in one place of the model."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return type(module) is kind and uses[id(module)] == 1 and not any(hooks)


def _is_fixed(norm: nn.Module) -> bool:
    return not norm.training and isinstance(norm.running_mean, Tensor)


def _fast(conv: nn.Conv2d, execution: Execution) -> nn.Module:
    few, padding = conv.in_channels < _CHANNELS_AT_A_TIME, conv.padding
    if conv.groups > 1 or conv.padding_mode != "zeros" or isinstance(padding, str):
        return _laid_out(conv, conv.weight, execution)
    if few and conv.out_channels >= _MUCH and execution.resolved_precision == "bf16":
        missing = _CHANNELS_AT_A_TIME - conv.in_channels
        weight = F.pad(conv.weight, (0, 0, 0, 0, 0, missing))
        return nn.Sequential(nn.ConstantPad3d((0, 0, 0, 0, 0, missing), 0.0), _laid_out(conv, weight, execution))
    reach = [size - 1 - pad for size, pad in zip(conv.kernel_size, padding, strict=True)]
    if few and conv.out_channels < _MUCH and conv.stride == conv.dilation == (1, 1) and min(reach) >= 0:
        return _FewChannels(conv, reach)
    return _laid_out(conv, conv.weight, execution)


def _laid_out(conv: nn.Conv2d, weight: Tensor, execution: Execution) -> nn.Conv2d:
    """A convolution with these weights, in a layout of their own."""
    twin = copy.copy(conv)
    data = weight.detach().contiguous(memory_format=execution.memory_format)
    twin._parameters = {**conv._parameters, "weight": nn.Parameter(data, requires_grad=False)}
    return twin


class _FewChannels(nn.Module):
    """A convolution whose input gradient is a convolution too, with the weights turned round.

    For few channels cuDNN's kernels of the gradient are several times slower than those of the forward pass.
    """

    def __init__(self, conv: nn.Conv2d, reach: list[int]) -> None:
        super().__init__()
        self.conv, self.reach = conv, reach
        self.turned = nn.Parameter(conv.weight.detach().flip(2, 3).transpose(0, 1).contiguous(), requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        conv = self.conv
        y: Tensor = _Convolution.apply(  # type: ignore[no-untyped-call]
            x, conv.weight, conv.bias, conv.padding, self.turned, self.reach
        )
        return y


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
