"""A model made ready for many passes and input gradients: the same function up to rounding, in faster kernels."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from pclc.execution.layers import (
    AsMatrix,
    ConvReLU,
    ConvReLUPool,
    FewChannels,
    Float32Linear,
    MoreChannels,
    as_kind,
    pooling,
)
from pclc.execution.settings import Execution

# Tensor cores work on eight channels of bf16 at a time; padding pays where they have much to do.
_CHANNELS_AT_A_TIME = 8
_MUCH = 32


def made_ready(model: nn.Module, execution: Execution) -> nn.Module:
    """The model with layers that run faster, and a last one that rounds less.

    - BatchNorm is folded into the convolution before it, and on CUDA so are ReLU and max-pooling of 2 x 2 pixels after
      it: each saves a pass over memory.
    - Weights get the layout of the images.
    - Convolutions of few channels get a gradient, or an input, for which cuDNN has better kernels; for small images on
      CUDA they become products with a matrix.
    - The last linear layer, in the order of `model.modules()`, stays in float32 where autocast would lower it: attacks
      compare logits that are nearly equal.

    Only what is safe to change from outside is changed: layers in eval mode that occur once, have no hooks, and the
    `forward` of their class. One is folded into a convolution where both are in a row in a plain `nn.Sequential`; a
    BatchNorm also where the module's class names both in `norms_after`, a dictionary from each convolution to the
    BatchNorm to which its output goes, and nowhere else. What is changed is copied, all else is shared with the model,
    and where there is nothing to change the model itself is returned. There is no gradient of the weights. Callers
    check once that it gives what the model gives: code outside may call the layers one by one.

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


def leaves_nothing_to_fuse(ready: nn.Module) -> bool:
    """Whether each convolution of a model that was made ready includes BatchNorm and ReLU: no compiler does better."""
    kinds = [type(module) for module in ready.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d | nn.ReLU)]
    return bool(kinds) and all(issubclass(kind, ConvReLU) for kind in kinds)


def _ready(module: nn.Module, execution: Execution, uses: Counter[int], last: nn.Module | None) -> nn.Module:
    if _is_plain(module, nn.Conv2d, uses):
        return _fast(module, execution)  # type: ignore[arg-type]
    if module is last:
        return as_kind(module, Float32Linear)
    children = dict(module.named_children())
    ready = {name: _ready(child, execution, uses, last) for name, child in children.items()}
    for name, after in _norms_after(module):
        conv, norm = children.get(name, module), children.get(after, module)
        plain = _is_plain(conv, nn.Conv2d, uses) and _is_plain(norm, nn.BatchNorm2d, uses)
        if plain and isinstance(norm.running_mean, Tensor) and not (norm.training or conv.training):
            ready[name] = _fast(fuse_conv_bn_eval(conv, norm), execution)  # type: ignore[arg-type, type-var]
            ready[after] = nn.Identity()
    if type(module) is nn.Sequential and _chooses_kernels(execution):
        channels_last = execution.memory_format == torch.channels_last
        _fold_relu(module, ready, uses, pools=channels_last and pooling() is not None)
    if all(ready[name] is child for name, child in children.items()):
        return module
    # Not by `copy.copy` and assignment, which modules may redefine: a compiled one passes what is assigned on to the
    # module that it was made from.
    twin: nn.Module = object.__new__(type(module))
    twin.__dict__.update(module.__dict__)
    twin.__dict__["_modules"] = {**module._modules, **ready}
    return twin


def _chooses_kernels(execution: Execution) -> bool:
    """Whether kernels that only CUDA has are chosen here, and not by a compiler."""
    return execution.torch_device.type == "cuda" and not execution.compile


def _fold_relu(module: nn.Sequential, ready: dict[str, nn.Module], uses: Counter[int], pools: bool) -> None:
    """Have convolutions do the ReLU that follows them, at once or after a BatchNorm that is gone, and the pooling."""
    before: str | None = None  # the convolution whose output comes here
    rectified: str | None = None  # the one whose output comes here after its ReLU
    for name, layer in module._modules.items():
        conv, before_relu, rectified = before, rectified, None
        if layer is None:
            before = None
        elif conv is not None and _is_plain(layer, nn.ReLU, uses):
            ready[conv] = as_kind(ready[conv], ConvReLU)
            ready[conv].cast = {}  # type: ignore[assignment]
            ready[name], before, rectified = nn.Identity(), None, conv
        elif before_relu is not None and pools and _is_plain(layer, nn.MaxPool2d, uses) and _halves(layer):
            ready[before_relu] = as_kind(ready[before_relu], ConvReLUPool)
            ready[name] = nn.Identity()
        elif type(layer) is not nn.BatchNorm2d or type(ready.get(name)) is not nn.Identity:  # it was not folded
            before = name if _is_plain(layer, nn.Conv2d, uses) and _takes_relu(ready[name]) else None


def _takes_relu(layer: nn.Module) -> bool:
    """Whether cuDNN's kernel with a ReLU does the same; of few channels there are better kernels."""
    if type(layer) not in (nn.Conv2d, MoreChannels):
        return False
    return layer.bias is not None and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def _halves(layer: nn.Module) -> bool:
    """Whether a max-pooling takes the largest of each 2 x 2 pixels, and nothing else."""
    sizes = [layer.kernel_size, layer.stride, layer.padding, layer.dilation]
    usual = [(size, size) if isinstance(size, int) else size for size in sizes] == [(2, 2), (2, 2), (0, 0), (1, 1)]
    return usual and not layer.ceil_mode and not layer.return_indices


def _norms_after(module: nn.Module) -> Iterable[tuple[str, str]]:
    """Names of children of which the second gets all the output of the first. For a subclass that is not known."""
    if type(module) is nn.Sequential:
        return pairwise(module._modules)  # not `named_children`, which names a layer in several places once
    pairs = vars(type(module)).get("norms_after")
    return pairs.items() if isinstance(pairs, dict) else ()


def _is_plain(module: nn.Module, kind: type[nn.Module], uses: Counter[int]) -> bool:
    """Whether calling it does what its kind says and nothing else, in one place of the model."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    is_patched = "forward" in vars(module)  # perhaps for another gradient, which is not compared
    return type(module) is kind and uses[id(module)] == 1 and not any(hooks) and not is_patched


def _fast(conv: nn.Conv2d, execution: Execution) -> nn.Module:
    few, padding = conv.in_channels < _CHANNELS_AT_A_TIME, conv.padding
    if conv.groups > 1 or conv.padding_mode != "zeros" or isinstance(padding, str):
        return as_kind(conv, nn.Conv2d, weight=_laid_out(conv.weight, execution))
    if few and conv.out_channels >= _MUCH and execution.resolved_precision == "bf16":
        weight = F.pad(conv.weight, (0, 0, 0, 0, 0, _CHANNELS_AT_A_TIME - conv.in_channels))
        return as_kind(conv, MoreChannels, more=_laid_out(weight, execution))
    reach = [size - 1 - pad for size, pad in zip(conv.kernel_size, padding, strict=True)]
    if few and conv.out_channels < _MUCH and conv.stride == conv.dilation == (1, 1) and min(reach) >= 0:
        kind = AsMatrix if _chooses_kernels(execution) else FewChannels
        twin = as_kind(conv, kind, turned=conv.weight.detach().flip(2, 3).transpose(0, 1).contiguous())
        twin.reach, twin.matrices = reach, {}  # type: ignore[assignment]
        return twin
    return as_kind(conv, nn.Conv2d, weight=_laid_out(conv.weight, execution))


def _laid_out(weight: Tensor, execution: Execution) -> Tensor:
    return weight.detach().contiguous(memory_format=execution.memory_format)
