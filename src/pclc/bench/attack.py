"""An attack beside the same attack of other libraries: same model, images, budget and batch, accuracy decided by us."""

import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from pclc.attacks import PGD, Attack, AutoAttack
from pclc.attacks.types import Stop
from pclc.bench.result import BenchResult, conditions
from pclc.bench.timing import host_seconds, in_turns
from pclc.execution import Execution, ieee_fp32, in_batches

Craft = Callable[[Tensor, Tensor], Tensor]
_FAIR = "bf16, channels last, compiled"


def bench_attack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    attack: Attack,
    title: str,
    batch_size: int = 250,
    rounds: int = 3,
    compiled: bool = True,
    report: Callable[[BenchResult, str], None] = lambda result, name: None,
) -> BenchResult:
    """Time the attack in its modes, and in every other library that is installed and has it; variants take turns.

    On CUDA a peer is also given the model compiled, channels last and under bf16 autocast, which is the fair one; so
    are we, unless `compiled` is False: the first run of each compiles for up to a minute. `report` sees what is known
    after each run, and the variant that ran.
    """
    model.eval()
    variants = _ours(model, attack, x.device, batch_size) | _peers(model, attack, x, batch_size)
    variants = {name: craft for name, craft in variants.items() if compiled or not name.endswith(_FAIR)}
    accuracies: dict[str, float] = {}
    times: dict[str, list[float]] = {name: [] for name in variants}  # the first of each is cold

    def result() -> BenchResult:
        """What is known by now: variants that have run at least once."""
        done = {name: seconds for name, seconds in times.items() if name in accuracies}
        warm = {name: median(seconds[1:] or seconds) for name, seconds in done.items()}
        peers = [name for name in done if not name.startswith("pclc")]
        usual = min((warm[name] for name in peers if not name.endswith(_FAIR)), default=None)
        fair = min((warm[name] for name in peers if name.endswith(_FAIR)), default=None)
        rows: list[dict[str, Any]] = [
            {
                "variant": name,
                "ms": warm[name] * 1e3,
                "cold ms": seconds[0] * 1e3,
                "runs": len(seconds),
                "accuracy %": accuracies[name],
                "times the fastest peer": usual / warm[name] if usual else None,
                "times the fair peer": fair / warm[name] if fair else None,
            }
            for name, seconds in done.items()
        ]
        return BenchResult(
            benchmark="attack",
            command="pclc bench attack",
            notes=(
                f"{attack} on {len(x):,} images of {title}, {batch_size} at a time. ms is the median of all runs but "
                "the first, which is cold and compiles; variants take turns in changing order. Accuracy is what is "
                'left, decided in IEEE float32 for all; with stop="never" as the last iterate has it. stop="success" '
                "leaves an image alone as soon as it is fooled, which no peer does inside a run of a gradient attack. "
                "The fair peer is given the model compiled, channels last and under bf16 autocast.",
            ),
            conditions=conditions(x.device),
            rows=tuple(rows),
        )

    def work(name: str, craft: Craft) -> Callable[[], None]:
        def run() -> None:
            model.eval()  # some peers leave it in train mode
            start = time.perf_counter()
            x_adv = craft(x, y)
            if x.is_cuda:
                torch.cuda.synchronize()
            times[name].append(time.perf_counter() - start)
            model.eval()
            accuracies[name] = 100 * _accuracy(model, x_adv, y, batch_size)
            report(result(), name)

        return run

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of peers, and of ours the same in every round
        in_turns({name: work(name, craft) for name, craft in variants.items()}, rounds, host_seconds)
    return result()


def _ours(model: nn.Module, attack: Attack, device: torch.device, batch_size: int) -> dict[str, Craft]:
    """The attack as it is by default and, on CUDA, with all that makes it fast."""
    ways = {"": Execution(batch_size=batch_size)}
    if device.type == "cuda":
        ways[", bf16"] = Execution(batch_size=batch_size, precision="bf16")
        ways[", " + _FAIR] = Execution(batch_size=batch_size, precision="bf16", compile=True)
    stops: tuple[Stop, ...] = ("never", "success") if isinstance(attack, PGD) else ("success",)

    def craft(attack: Attack, execution: Execution) -> Craft:
        return lambda x, y: attack(model, x, y, seed=0, execution=execution)

    return {
        f'pclc, stop="{stop}"{way}': craft(replace(attack, stop=stop), execution)
        for stop in stops
        for way, execution in ways.items()
    }


def _peers(model: nn.Module, attack: Attack, x: Tensor, batch_size: int) -> dict[str, Craft]:
    """Peers on the model as it is, and for PGD the first of them on the fair one; AutoAttack would compile it anew for
    every number of images that are left."""

    def found_for(model: nn.Module) -> dict[str, Craft]:
        if isinstance(attack, AutoAttack) and attack.version != "custom":
            return _autoattack_peers(model, attack, x, batch_size)
        # Their Linf PGD on cross-entropy is the same attack as ours only where ours has no other settings.
        if isinstance(attack, PGD) and attack == PGD(attack.eps, attack.alpha, attack.steps, stop=attack.stop):
            return _pgd_peers(model, attack, x, batch_size)
        return {}

    found = found_for(model)
    if x.is_cuda and found and isinstance(attack, PGD):
        name = next(iter(found))
        found[f"{name}, {_FAIR}"] = found_for(_fair(model))[name]
    return found


def _fair(model: nn.Module) -> nn.Module:
    """The model as somebody who cares about speed would hand it to any library."""

    class Fast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model
            self.compiled = torch.compile(model)

        def forward(self, x: Tensor) -> Tensor:
            with torch.autocast("cuda", dtype=torch.bfloat16):
                return self.compiled(x.contiguous(memory_format=torch.channels_last)).float()  # type: ignore[no-any-return]

    return Fast().eval()


def _accuracy(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> float:
    with torch.no_grad(), ieee_fp32():
        right = in_batches(lambda a, b: model(a).argmax(1) == b, x, y, size=batch_size)
    return float(right.float().mean())


def _autoattack_peers(model: nn.Module, attack: AutoAttack, x: Tensor, batch_size: int) -> dict[str, Craft]:
    """Standard AutoAttack of the pyautoattack package."""
    if not find_spec("pyautoattack"):
        return {}
    from pyautoattack import AutoAttack as Theirs

    theirs = Theirs(model, norm=attack.norm, eps=attack.eps, version=attack.version, device=x.device, seed=0)
    name = f"pyautoattack {version('pyautoattack')}"
    return {name: lambda a, b: theirs.run_standard_evaluation(a, b, batch_size=batch_size)[0]}


def _pgd_peers(model: nn.Module, attack: PGD, x: Tensor, batch_size: int) -> dict[str, Craft]:
    """PGD of each library that is installed, as its own documentation has it."""
    eps, alpha, steps = attack.eps, attack.alpha, attack.steps
    found: dict[str, Craft] = {}

    def batched(craft: Craft) -> Craft:
        return lambda a, b: in_batches(craft, a, b, size=batch_size)

    if find_spec("torchattacks"):
        import torchattacks

        theirs = torchattacks.PGD(model, eps=eps, alpha=alpha, steps=steps, random_start=True)
        found[f"torchattacks {torchattacks.__version__}"] = batched(theirs)
    if find_spec("foolbox"):
        import foolbox

        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device)
        pgd = foolbox.attacks.LinfPGD(abs_stepsize=alpha, steps=steps, random_start=True)
        found[f"foolbox {foolbox.__version__}"] = batched(lambda a, b: pgd(wrapped, a, b, epsilons=eps)[1])
    if find_spec("art"):
        import art
        import numpy as np
        from art.attacks.evasion import ProjectedGradientDescentPyTorch
        from art.estimators.classification import PyTorchClassifier

        with torch.no_grad():
            classes = model(x[:1]).shape[1]
        classifier = PyTorchClassifier(
            model,
            nn.CrossEntropyLoss(),
            tuple(x.shape[1:]),
            classes,
            clip_values=(0, 1),
            device_type="gpu" if x.is_cuda else "cpu",
        )
        art_pgd = ProjectedGradientDescentPyTorch(
            classifier, np.inf, eps, alpha, max_iter=steps, num_random_init=1, batch_size=batch_size, verbose=False
        )
        found[f"ART {art.__version__}"] = lambda a, b: torch.from_numpy(
            art_pgd.generate(a.cpu().numpy(), b.cpu().numpy())
        ).to(a.device)
    return found
