"""What was kept of one model is never taken for another one's, wherever the two differ."""

import copy
import functools
import sys
import types
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pclc
from pclc import hashes
from pclc.hashes import architecture_hash

CPU = pclc.Execution(device="cpu")


class Holder(nn.Module):
    """Computes with something that is no parameter."""

    def __init__(self, held: object) -> None:
        super().__init__()
        self.held = held

    def forward(self, x: Tensor) -> Tensor:
        if callable(self.held):
            return self.held(x.flatten(1))  # type: ignore[no-any-return]
        weights = self.held["w"] if isinstance(self.held, dict) else self.held
        if isinstance(weights, list):
            return weights[0](x.flatten(1))  # type: ignore[no-any-return]
        return x.flatten(1) @ torch.as_tensor(weights)  # type: ignore[no-any-return]


def linear(seed: int) -> nn.Linear:
    torch.manual_seed(seed)
    return nn.Linear(4, 3)


def weights(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(4, 3)).astype("float32")


def closing(seed: int) -> nn.Module:
    layer = linear(seed)
    return Holder(lambda x: layer(x))


def calling_itself(seed: int) -> nn.Module:
    layer = linear(seed)

    def call(x: Tensor, again: bool = True) -> Tensor:
        return call(x, again=False) if again else layer(x)

    return Holder(call)


def without(x: Tensor, dropped: set[int]) -> Tensor:
    return x.index_fill(1, torch.tensor(sorted(dropped)), 0)


def hooked(seed: int) -> nn.Module:
    model = nn.Sequential(nn.Flatten(), linear(0))
    model.register_forward_hook(lambda module, args, out: out.roll(seed, 1))
    return model


PAIRS: dict[str, Callable[[int], nn.Module]] = {
    "closure": closing,
    "calling itself": calling_itself,  # as the layers of Hugging Face do
    "set": lambda seed: Holder(partial(without, dropped={seed, 3})),
    "default": lambda seed: Holder(partial(lambda x, layer: layer(x), layer=linear(seed))),
    "list": lambda seed: Holder([linear(seed)]),
    "array": lambda seed: Holder(weights(seed)),
    "dictionary": lambda seed: Holder({"w": weights(seed)}),
    "hook": hooked,
}


@pytest.mark.parametrize("make", PAIRS.values(), ids=PAIRS)
def test_another_model_is_measured_anew(make: Callable[[int], nn.Module], tmp_path: Path) -> None:
    x, y = torch.rand(30, 1, 2, 2), torch.arange(30) % 3
    for seed in (0, 1):
        kept = pclc.evaluate(make(seed).eval(), x, y, ["noise(eps=0.1)"], out=tmp_path / "kept", execution=CPU)
        own = pclc.evaluate(make(seed).eval(), x, y, ["noise(eps=0.1)"], execution=CPU)
        assert torch.equal(kept.clean, own.clean)
        assert torch.equal(kept.outcomes[0].robust, own.outcomes[0].robust)


def test_other_code_is_another_model() -> None:
    class Network(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).relu()

    first = Network

    class Network(nn.Linear):  # type: ignore[no-redef]
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).tanh()

    assert architecture_hash(first(2, 2)) != architecture_hash(Network(2, 2))


SOURCE = """
from dataclasses import dataclass

import torch
from torch import nn

class Step(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * {autograd}

    @staticmethod
    def backward(ctx, grad):
        return grad

@dataclass(frozen=True)
class Setting:
    factor: float = 2.0

    def scaled(self, x):
        return x * self.factor * {dataclass}

class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.setting = Setting()

    def forward(self, x):
        return self.setting.scaled(x * {base})

class Network(Base):
    temperature = {attribute}

    @property
    def scale(self):
        return {property}

    @staticmethod
    def shift(x):
        return x + {static}

    @torch.autocast("cpu", enabled=False)
    def prepared(self, x):
        return self.shift(x) * {method}

    def never_called(self, x):
        return x * {unused}

    def forward(self, x):
        x = torch.stack([helper(row) for row in self.prepared(x) * self.scale])
        return Step.apply(super().forward(x)) / self.temperature

@torch.no_grad()
def helper(x):
    return WORK["helper"] and other.work(further(x))

WORK = {{"helper": helper}}

def further(x):
    return helper(x) if x is None else x * {function}
"""


def network(script: str = "a_script", **changed: int) -> nn.Module:
    names = (
        "attribute",
        "autograd",
        "base",
        "dataclass",
        "property",
        "static",
        "method",
        "unused",
        "function",
        "module",
    )
    numbers = {**dict.fromkeys(names, 1), **changed}
    other = types.ModuleType("other")
    exec(f"def work(x): return x * {numbers.pop('module')}", vars(other))
    own = {"__name__": script, "other": other}
    exec(SOURCE.format(**numbers), own)
    made: nn.Module = own["Network"]()  # type: ignore[operator]
    return made


@pytest.mark.parametrize(
    "what", ["autograd", "base", "dataclass", "property", "static", "method", "function", "module", "attribute"]
)
def test_code_that_forward_reaches_counts(what: str) -> None:
    assert architecture_hash(network()) == architecture_hash(network())
    assert architecture_hash(network(unused=2)) == architecture_hash(network())
    assert architecture_hash(network(**{what: 2})) != architecture_hash(network())


def test_a_global_with_the_name_of_an_attribute_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a script that calls its model `held`."""
    first, second = Holder(linear(0)), Holder(linear(1))
    monkeypatch.setitem(globals(), "held", first)
    made = architecture_hash(first)
    monkeypatch.setitem(globals(), "held", second)
    assert architecture_hash(first) == made


def test_a_model_whose_helper_changed_is_measured_anew(tmp_path: Path) -> None:
    x, y = torch.rand(30, 3), torch.arange(30) % 3
    for sign in (1, -1):
        kept = pclc.evaluate(network(function=sign), x, y, ["noise(eps=0.1)"], out=tmp_path, execution=CPU)
        assert torch.equal(kept.clean, (sign * x).argmax(1) == y)


def test_a_compiled_model_is_the_same_model() -> None:
    model = nn.Sequential(nn.Flatten(), linear(0))
    made = architecture_hash(model)
    assert architecture_hash(torch.compile(model, backend="eager")) == made
    model.compile(backend="eager")
    assert architecture_hash(model) == made


def test_a_helper_that_is_compiled_is_the_same_helper() -> None:
    def model(factor: float, around: Callable[..., Callable[[Tensor], Tensor]]) -> nn.Module:
        def scaled(x: Tensor) -> Tensor:
            return factor * x

        return Holder(around(scaled))

    for around in (partial(torch.compile, backend="eager"), torch.compiler.disable):
        made = architecture_hash(model(1.0, around))
        assert made == architecture_hash(model(1.0, around))
        assert made != architecture_hash(model(2.0, around))


def test_a_method_that_wraps_something_else_counts() -> None:
    def model(factor: float, wrapped: Callable[..., object]) -> nn.Module:
        class Network(nn.Flatten):
            @functools.wraps(wrapped)
            def work(self, x: Tensor) -> Tensor:
                return self.after(x)

            def after(self, x: Tensor) -> Tensor:
                return factor * x

            def forward(self, x: Tensor) -> Tensor:
                return self.work(x)

        return Network()

    for wrapped in (torch.relu, nn.ReLU, linear):
        made = architecture_hash(model(1.0, wrapped))
        assert made == architecture_hash(model(1.0, wrapped))
        assert made != architecture_hash(model(2.0, wrapped))


def test_a_set_of_functions_has_no_order() -> None:
    """The order of a set of functions is that of their addresses."""

    def functions() -> set[Callable[..., object]]:
        def shared(x: Tensor) -> Tensor:
            return x

        return {lambda x: shared(x), lambda x: 2 * shared(x)}

    held = [functions() for _ in range(50)]
    assert len({architecture_hash(Holder(each)) for each in held}) == 1


@pytest.mark.parametrize(
    ("name", "file"), [("a_script", "/home/ros-packages/a_script.py"), ("__main__", "/x/site-packages/ray/worker.py")]
)
def test_the_users_own_code_counts_wherever_it_lies(name: str, file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType(name)
    module.__file__ = file
    monkeypatch.setitem(sys.modules, name, module)
    assert architecture_hash(network(name, method=2)) != architecture_hash(network(name))


def test_a_sparse_buffer_counts() -> None:
    def model(diagonal: float) -> nn.Module:
        made = nn.Flatten()
        made.register_buffer("mask", (diagonal * torch.eye(3)).to_sparse())
        return made

    assert hashes.model_hash(model(1.0)) == hashes.model_hash(model(1.0)) != hashes.model_hash(model(2.0))


@pytest.mark.parametrize("name", ["closure", "calling itself", "set", "default", "list", "array", "dictionary"])
def test_what_can_be_told_is_the_same_again(name: str) -> None:
    model = PAIRS[name](0)
    assert architecture_hash(model) == architecture_hash(copy.deepcopy(model))


def test_modules_that_hold_each_other_end() -> None:
    inner = nn.Linear(2, 2)
    outer = nn.Sequential(inner)
    inner.above = [outer]  # type: ignore[assignment]
    assert architecture_hash(outer)


def test_methods_that_are_wrapped_end() -> None:
    model = nn.Linear(2, 2)
    for name in ("update", "compute", "reset"):  # each holds the module that holds all of them, as torchmetrics has it
        setattr(model, name, (lambda held: lambda: held)(model))
    assert architecture_hash(model)


def test_functions_that_all_call_each_other_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Along every path from one to another they would be too many already when there are ten."""

    def one() -> object:
        return two, three, four

    def two() -> object:
        return one, three, four

    def three() -> object:
        return one, two, four

    def four() -> object:
        return one, two, three

    looked, code = [], hashes._code
    monkeypatch.setattr(hashes, "_code", lambda found: (looked.append(found.co_name), code(found))[1])
    architecture_hash(Holder(one))
    assert looked.count("four") == 1
