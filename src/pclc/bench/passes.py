"""Passes through a network, of which attacks are made: logits, gradients and exact logits, beside the plain model."""

import copy
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from pclc.attacks.frozen import frozen
from pclc.attacks.objectives import get_objective
from pclc.attacks.victim import Victim
from pclc.bench.result import BenchResult, conditions
from pclc.bench.timing import Work, host_seconds, in_turns, ratio
from pclc.execution import Execution
from pclc.models import create_model
from pclc.models.classifier import Classifier

NETWORKS = ("lenet5", "vgg13", "resnet56", "preact_resnet18")
_PLAIN = "plain"
_WARM_UPS = 4  # a victim records a graph in its third pass


def bench_passes(
    networks: Sequence[str] = NETWORKS,
    execution: Execution | None = None,
    rounds: int = 5,
    compiled: bool = True,
    report: Callable[[dict[str, Any]], None] = lambda row: None,
) -> BenchResult:
    """Time passes of networks with random weights; all variants take turns, and `report` sees each row.

    On CUDA there is also bf16, and each compiled unless `compiled` is False, which takes up to a minute a network.
    """
    execution = execution or Execution()
    device, n = execution.torch_device, execution.resolved_batch_size
    rows: list[dict[str, Any]] = []
    for name in networks:
        model, x, y = _network(name, n, device)
        ways = {"pclc": execution}
        if device.type == "cuda":
            ways["pclc, bf16"] = replace(execution, precision="bf16")
            if compiled:
                ways |= {f"{way}, compiled": replace(settings, compile=True) for way, settings in ways.items()}
        plain = copy.deepcopy(model)  # a victim may lend its model another layout
        with frozen(model), frozen(plain), ExitStack() as stack:
            victims = {
                way: stack.enter_context(Victim(model, settings.for_attacks(device))) for way, settings in ways.items()
            }
            for what, variants in _works(plain, victims, x, y).items():
                ready = {each: _waiting(work, device) for each, work in variants.items()}
                times = in_turns(ready, rounds, host_seconds)
                for variant in variants:
                    seconds = median(times[variant])
                    rows.append(
                        {
                            "network": name,
                            "pass": what,
                            "variant": variant,
                            "ms": 1e3 * seconds,
                            "img/s": n / seconds,
                            "times the plain one": ratio(times, _PLAIN, variant),
                        }
                    )
                    report(rows[-1])
    return BenchResult(
        benchmark="passes",
        command="pclc bench passes",
        notes=(
            f"{n:,} random images a pass, through networks with random weights and statistics of BatchNorm of such "
            f"images; medians of {rounds} rounds in which the variants take turns, after {_WARM_UPS} passes that do "
            "not count. `plain` is the model itself, eager, as torch runs it by default; for exact logits with TF32 "
            "off. Logits without a gradient are what black-box attacks ask for, gradients what the others do, and "
            "exact logits decide about outcomes.",
        ),
        conditions=conditions(device),
        rows=tuple(rows),
    )


def _network(name: str, n: int, device: torch.device) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = create_model(name)
    assert isinstance(model, Classifier)
    channels, size = model.in_channels, model.image_size
    x, y = torch.rand(n, channels, size, size), torch.randint(10, (n,))
    with torch.no_grad():
        model.train()(x[:500])  # statistics of BatchNorm, without which activations grow from block to block
    return model.eval().to(device), x.to(device), y.to(device)


def _works(model: nn.Module, victims: dict[str, Victim], x: Tensor, y: Tensor) -> dict[str, dict[str, Work]]:
    """By what is asked for and by variant."""
    margin = get_objective("margin")

    def gradient() -> Tensor:
        leaf = x.clone().requires_grad_()
        return torch.autograd.grad(margin(model(leaf), y).sum(), leaf)[0]

    def logits() -> Tensor:
        with torch.no_grad():
            return model(x)  # type: ignore[no-any-return]

    def exact() -> Tensor:
        with Execution(device=str(x.device), precision="fp32").arithmetic():
            return logits()

    asked: dict[str, dict[str, Work]]
    asked = {"logits": {_PLAIN: logits}, "gradients": {_PLAIN: gradient}, "exact logits": {_PLAIN: exact}}
    for way, victim in victims.items():
        asked["logits"][way] = partial(victim.logits, x)
        asked["gradients"][way] = partial(victim.gradient, margin, x, y)
    asked["exact logits"]["pclc"] = partial(victims["pclc"].exact_logits, x)  # all decide in the same way
    return asked


def _waiting(work: Work, device: torch.device) -> Work:
    """The same, done when it returns, and warm."""

    def run() -> None:
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of compilers
        for _ in range(_WARM_UPS):
            run()
    return run
