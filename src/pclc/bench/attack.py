"""PGD beside other libraries' PGD: same model, images, budget and batch, accuracy decided the same way for all."""

from collections.abc import Callable
from importlib.util import find_spec
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from pclc.attacks import PGD
from pclc.bench.result import BenchResult, conditions
from pclc.bench.timing import host_seconds, in_turns
from pclc.execution import ieee_fp32, in_batches

Craft = Callable[[Tensor, Tensor], Tensor]


def bench_attack(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    attack: PGD,
    title: str,
    batch_size: int = 250,
    rounds: int = 3,
    report: Callable[[str], None] = lambda name: None,
) -> BenchResult:
    """Time the attack in both of its modes and in every other library that is installed; variants take turns."""
    model = model.eval()
    settings: dict[str, Any] = {"eps": attack.eps, "alpha": attack.alpha, "steps": attack.steps}
    never, success = PGD(**settings, stop="never"), PGD(**settings, stop="success")
    variants: dict[str, Craft] = {
        'pclc, stop="never"': lambda a, b: never(model, a, b, seed=0),
        'pclc, stop="success"': lambda a, b: success(model, a, b, seed=0),
        **_peers(model, settings, x, batch_size),
    }
    outcome: dict[str, Tensor] = {}

    def work(name: str, craft: Craft) -> Callable[[], None]:
        def run() -> None:
            outcome[name] = in_batches(craft, x, y, size=batch_size)
            if x.is_cuda:
                torch.cuda.synchronize()
            report(name)

        return run

    times = in_turns({name: work(name, craft) for name, craft in variants.items()}, rounds, host_seconds)
    peers = [name for name in variants if not name.startswith("pclc")]
    fastest = min(peers, key=lambda name: median(times[name])) if peers else None
    return BenchResult(
        benchmark="attack",
        command="pclc bench attack",
        notes=(
            f"{never}, that is with the last iterate counted, on {len(x):,} images of {title}, in batches of "
            f"{batch_size}; median of {rounds} rounds in which the variants take turns in changing order. Accuracy is "
            'what is left, decided in IEEE float32 for all. stop="success" leaves an image alone as soon as it is '
            "fooled, which no peer does inside a run.",
        ),
        conditions=conditions(x.device),
        rows=tuple(
            {
                "variant": name,
                "ms": median(times[name]) * 1e3,
                "accuracy %": 100 * _accuracy(model, outcome[name], y, batch_size),
                "times the fastest peer": median(times[fastest]) / median(times[name]) if fastest else None,
            }
            for name in variants
        ),
    )


def _accuracy(model: nn.Module, x: Tensor, y: Tensor, batch_size: int) -> float:
    with torch.no_grad(), ieee_fp32():
        right = in_batches(lambda a, b: model(a).argmax(1) == b, x, y, size=batch_size)
    return float(right.float().mean())


def _peers(model: nn.Module, settings: dict[str, Any], x: Tensor, batch_size: int) -> dict[str, Craft]:
    """PGD of each library that is installed, as its own documentation has it."""
    eps, alpha, steps = settings["eps"], settings["alpha"], settings["steps"]
    found: dict[str, Craft] = {}
    if find_spec("torchattacks"):
        import torchattacks

        theirs = torchattacks.PGD(model, eps=eps, alpha=alpha, steps=steps, random_start=True)
        found[f"torchattacks {torchattacks.__version__}"] = lambda a, b: theirs(a, b)
    if find_spec("foolbox"):
        import foolbox

        wrapped = foolbox.PyTorchModel(model, bounds=(0, 1), device=x.device)
        pgd = foolbox.attacks.LinfPGD(abs_stepsize=alpha, steps=steps, random_start=True)
        found[f"foolbox {foolbox.__version__}"] = lambda a, b: pgd(wrapped, a, b, epsilons=eps)[1]
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
