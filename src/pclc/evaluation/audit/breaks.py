"""Where the gradient is lost on its way from the logits to the image, found with hooks and mended with BPDA."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from pclc.attacks import BPDA, get_objective
from pclc.attacks.frozen import frozen
from pclc.attacks.inputs import explain_inference
from pclc.attacks.types import Model

_MOST_BREAKS = 8
_LOST, _THERE = 0.9, 0.5  # shares of examples whose gradient is exactly zero behind and before a break


class Break(NamedTuple):
    """A place that lets no gradient through.

    Attributes:
        name: of the module; "" is the model's own code, outside of all its modules.
        kind: "cut": the graph ends there, as at `detach`; "flat": the derivative is zero, as of rounding, or NaN.
        mended: how the identity stands in for the gradient: "through" the module, "into" the one that comes next,
            "out of" the last one to the logits; "" where no shapes fit.
        at: name of that module.
        call: which call of it in a forward pass, from 1; a model that optimises calls it again and again.
        source: with "into", name and call of the module whose output stands in; None for the image.
    """

    name: str
    kind: str
    mended: Literal["through", "into", "out of", ""] = ""
    at: str = ""
    call: int = 1
    source: tuple[str, int] | None = None

    def __str__(self) -> str:
        place = f"module {self.name!r}" if self.name else "the model's own forward"
        return f"{place} ({'ends the graph' if self.kind == 'cut' else 'has a derivative of zero or NaN'})"


class _Passed(NamedTuple):
    name: str
    entered: Tensor
    left: Tensor
    call: int
    with_gradients: bool  # it ran where a graph is recorded, so that what enters it is not lost again


class StraightThrough(nn.Module):
    """A model whose breaks pass the gradient on as it is (BPDA with the identity); its values are the model's own."""

    def __init__(self, model: nn.Module, breaks: tuple[Break, ...]) -> None:
        super().__init__()
        self.model, self.breaks = model, breaks

    def forward(self, x: Tensor) -> Tensor:
        """The model's logits."""
        ends: list[Tensor] = []
        # Breaks nearer to the image first, so that outputs that stand in further on are mended ones.
        hooks = [hook for found in reversed(self.breaks) for hook in self._hooks(found, x, ends)]
        try:
            logits: Tensor = self.model(x.clone())  # into which it may write, and x stands in for its input
        finally:
            for hook in hooks:
                hook.remove()
        return _value_of(logits, ends[-1]) if ends else logits

    def _hooks(self, found: Break, x: Tensor, ends: list[Tensor]) -> Iterator[Any]:
        sources = [x]

        def through(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
            return _value_of(output, inputs[0])

        def into(module: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
            return (_value_of(inputs[0], sources[-1].reshape(inputs[0].shape)), *inputs[1:])

        def keep_in(outputs: list[Tensor]) -> Callable[[nn.Module, tuple[Any, ...], Tensor], None]:
            return lambda module, inputs, output: outputs.append(output.clone())  # into which the model may write

        module = self.model.get_submodule(found.at)
        if found.mended != "into":
            hook = through if found.mended == "through" else keep_in(ends)
            yield module.register_forward_hook(_at_call(found.call, hook))
            return
        if found.source:
            name, call = found.source
            yield self.model.get_submodule(name).register_forward_hook(_at_call(call, keep_in(sources)))
        yield module.register_forward_pre_hook(_at_call(found.call, into))


def _at_call(number: int, hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that does nothing at any other call of its module."""
    calls = itertools.count(1)
    return lambda *arguments: hook(*arguments) if next(calls) == number else None


def mend(model: Model, x: Tensor, y: Tensor, size: int | None = None) -> tuple[Model, tuple[Break, ...]]:
    """The model with its breaks mended where the identity fits, and the breaks, one after the other.

    Args:
        model: images to logits; a plain function has no modules to look at and comes back as it is.
        x: a few images.
        y: their true classes.
        size: images in a pass; None: all.

    Example:
        >>> model = nn.Sequential(nn.Hardshrink(0.6), nn.Linear(2, 3))  # no gradient for small inputs
        >>> mended, breaks = mend(model, torch.rand(8, 2) / 2, torch.zeros(8, dtype=torch.int64))
        >>> [str(found) for found in breaks]
        ["module '0' (has a derivative of zero or NaN)"]
    """
    found: tuple[Break, ...] = ()
    if not isinstance(model, nn.Module):
        return model, found
    mended: nn.Module = model
    while len(found) < _MOST_BREAKS:
        try:
            new = _find(mended, x, y, size or len(x), {(place.name, place.call) for place in found})
        except Exception:  # whatever a stranger's module does with a gradient that it does not expect
            new = Break("", "cut")
        if new is None or new in found:  # which the identity has not mended
            break
        found += (new,)
        if not new.mended:
            break
        mended = StraightThrough(model, found)
    return mended if all(place.mended for place in found) else model, found


def has_gradient(model: Model, x: Tensor) -> bool:
    """Whether the logits depend on the images, as autograd sees it."""
    with torch.enable_grad(), frozen(model), explain_inference():
        return model(x.detach().requires_grad_().clone()).requires_grad


def _find(model: nn.Module, x: Tensor, y: Tensor, size: int, tried: set[tuple[str, int]]) -> Break | None:
    """The break that is nearest to the logits, in none of the calls tried; None where the gradient gets through."""
    passed: list[_Passed] = []
    batches: list[tuple[int, list[float]]] = []  # images in it, and the shares whose gradient is lost, at every place
    inner = model.model if isinstance(model, StraightThrough) else model
    hooks = [
        module.register_forward_hook(_recorder(name, passed))
        for name, module in inner.named_modules()
        if name and not isinstance(module, torch.jit.ScriptModule)  # which takes no hooks
    ]
    try:
        with torch.enable_grad(), frozen(model):
            for some, classes in reversed(list(zip(torch.split(x, size), torch.split(y, size), strict=True))):
                # Nothing stays in memory of the batch before.
                passed.clear()
                new, cut, without, wanted = [], [], [], []
                leaf = some.detach().requires_grad_()
                logits = model(leaf.clone())  # into which it may write
                new = [p for p in passed if (p.name, p.call) not in tried]
                cut = [p for p in new if p.entered.requires_grad and not p.left.requires_grad]
                without = [
                    p for p in passed if p.with_gradients and not p.entered.requires_grad and not p.left.requires_grad
                ]
                if not logits.requires_grad:
                    return _place("cut", cut, without, passed, some, logits)
                value = get_objective("margin")(logits, classes).sum()
                wanted = [leaf, *(t for p in passed for t in (p.entered, p.left) if t.requires_grad)]
                shares = [_lost(grad) for grad in torch.autograd.grad(value, wanted, allow_unused=True)]
                batches.append((len(some), shares))
    finally:
        for hook in hooks:
            hook.remove()
    # Batches that took another way through the model say nothing of the places on this one.
    alike = [(n, shares) for n, shares in batches if len(shares) == len(wanted)]
    images = sum(n for n, _ in alike)
    lost = {id(t): sum(n * shares[i] for n, shares in alike) / images for i, t in enumerate(wanted)}
    if lost[id(leaf)] < _LOST:
        return None
    there = [p for p in new if lost.get(id(p.left), 1.0) <= _THERE]
    flat = [p for p in there if lost.get(id(p.entered), 1.0) >= _LOST]
    behind = [p for p in passed if lost.get(id(p.entered), 1.0) <= _THERE]
    return _place("flat", flat, behind or without, passed, some, logits)


def _place(
    kind: str, inside: list[_Passed], behind: list[_Passed], passed: list[_Passed], x: Tensor, logits: Tensor
) -> Break:
    """Where the break is: inside a module, or in the model's own code before the first module behind it, or at the end.

    Of modules within each other it is the innermost over which the identity fits, and where that did not help the next:
    what has an encoder and a decoder gives back an image, though neither of them does.
    """
    if inside:
        p = _innermost([p for p in inside if p.entered.shape == p.left.shape] or inside)
        return Break(p.name, kind, "through" if p.entered.shape == p.left.shape else "", p.name, p.call)
    if behind:
        return _between(kind, behind[0], passed, x)
    ends = [p for p in passed if p.left.shape == logits.shape]
    return Break("", kind, "out of", ends[-1].name, ends[-1].call) if ends else Break("", kind)


def _between(kind: str, p: _Passed, passed: list[_Passed], x: Tensor) -> Break:
    """A break in the model's own code before p: the image, or an output on the way that still has a graph, stands in.

    Of those that fit, flattened or not, the one whose values are nearest to what enters p: the identity is nearest to
    what the code between them does.
    """
    ended = passed[: next(i for i, q in enumerate(passed) if q is p)]
    before = [q for q in ended if not q.name.startswith(f"{p.name}.")]  # what p holds runs after it is entered
    sources: list[tuple[Tensor, tuple[str, int] | None]] = [(x, None)]
    sources += [(q.left, (q.name, q.call)) for q in before if q.left.requires_grad]
    away = [
        (float((tensor.flatten(1) - p.entered.flatten(1)).detach().norm()), source)
        for tensor, source in sources
        if tensor.flatten(1).shape == p.entered.flatten(1).shape
    ]
    if not away:
        return Break("", kind)
    return Break("", kind, "into", p.name, p.call, min(away, key=lambda found: found[0])[1])


def _innermost(passed: list[_Passed]) -> _Passed:
    """The last one that holds no other of them."""
    return next(p for p in reversed(passed) if not any(q.name.startswith(f"{p.name}.") for q in passed))


def _recorder(name: str, passed: list[_Passed]) -> Callable[[nn.Module, tuple[Any, ...], Any], None]:
    def record(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        if inputs and isinstance(inputs[0], Tensor) and isinstance(output, Tensor):
            call = 1 + sum(p.name == name for p in passed)
            passed.append(_Passed(name, inputs[0], output, call, torch.is_grad_enabled()))

    return record


def _lost(grad: Tensor | None) -> float:
    """The share of examples whose gradient is exactly zero, where attacks take NaN for zero."""
    return 1.0 if grad is None else float((~grad.nan_to_num(0.0).flatten(1).any(1)).double().mean())


@torch.enable_grad()  # also where a model runs a part of itself without gradients
def _value_of(value: Tensor, stand_in: Tensor) -> Tensor:
    """The one, with the gradient of the other."""
    return BPDA(lambda _: value.detach())(stand_in)  # type: ignore[no-any-return]
