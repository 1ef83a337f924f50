"""A gradient for a module that has none, or none of use."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from pclc.hints import did_you_mean


class _Swap(torch.autograd.Function):
    """The first argument on the way forward, the second on the way back."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, stand_in: Tensor) -> Tensor:
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor]:
        return None, grad


class BPDA(nn.Module):
    r"""Backward pass differentiable approximation (Athalye et al., ICML 2018, arXiv 1802.00420).

    The value is that of `module`, to the last bit; the gradient is that of `backward`, as if that had been called
    instead: the identity where `module` returns nearly what it is given, as rounding or a projection does, else a
    smooth function close to it.

    Args:
        module: any function of a tensor, with or without a gradient.
        backward: a differentiable function with outputs of the same shape; None is the identity.

    Example:
        >>> quantise = BPDA(torch.round)
        >>> x = torch.tensor([[0.2, 0.7]], requires_grad=True)
        >>> value = quantise(x)
        >>> value.sum().backward()
        >>> value.detach(), x.grad
        (tensor([[0., 1.]]), tensor([[1., 1.]]))
    """

    def __init__(self, module: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor] | None = None) -> None:
        super().__init__()
        for name, function in (("module", module), ("backward", backward)):
            if not callable(function) and (name == "module" or function is not None):
                raise ValueError(
                    f"Expected `{name}` to be a module or a function, but got a {type(function).__name__}."
                )
        self.module, self.backward = module, backward

    def forward(self, x: Tensor) -> Tensor:
        """The value of `module`, with the gradient of `backward`."""
        before = x if self.backward is None else x.clone()  # `module` may write into x
        with torch.no_grad():
            value = self.module(x)
        stand_in = before if self.backward is None else self.backward(before)
        if value.shape != stand_in.shape:
            whose = ", that of the input, which stands in where `backward` is None" if self.backward is None else ""
            raise ValueError(
                f"Expected `backward` to give the shape of `module`'s output, {tuple(value.shape)}, "
                f"but got {tuple(stand_in.shape)}{whose}."
            )
        return _Swap.apply(value, stand_in)  # type: ignore[no-any-return, no-untyped-call]


@contextmanager
def replace_module(model: nn.Module, name: str, replacement: nn.Module) -> Iterator[nn.Module]:
    """Put another module in the place of a named one, and put the old one back at the end, whatever happens.

    Args:
        model: holds the module.
        name: as in `model.named_modules()`, such as "features.3".
        replacement: what takes its place.

    Example:
        >>> model = nn.Sequential(nn.Flatten(), nn.Hardshrink(), nn.Linear(4, 2))
        >>> with replace_module(model, "1", BPDA(model[1])):
        ...     print(type(model[1]).__name__)
        BPDA
        >>> print(type(model[1]).__name__)
        Hardshrink
    """
    names = [known for known, _ in model.named_modules(remove_duplicate=False) if known]
    if name not in names:
        hint = did_you_mean(name, names)
        raise ValueError(f"Expected `name` to be a submodule of the model, but got {name!r}.{hint}")
    path, _, last = name.rpartition(".")
    parent = model.get_submodule(path)
    before = getattr(parent, last)
    setattr(parent, last, replacement)
    try:
        yield model
    finally:
        setattr(parent, last, before)
