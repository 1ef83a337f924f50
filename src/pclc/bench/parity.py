"""AutoAttack beside pyautoattack: each component and the whole, on the same model and images, over attack seeds."""

import copy
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn

from pclc.attacks import Attack, AutoAttack
from pclc.attacks.decide import is_fooled
from pclc.attacks.types import Norm
from pclc.bench.result import BenchResult, conditions
from pclc.evaluation.budget import is_inside
from pclc.hashes import model_hash

WHOLE = "autoattack"


def bench_parity(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    attack: AutoAttack,
    title: str,
    components: Sequence[str] = (),
    seeds: int = 3,
    batch_size: int = 250,
    report: Callable[[BenchResult], None] = lambda result: None,
    before: BenchResult | None = None,
) -> BenchResult:
    """Compare robust accuracies, averaged over seeds, and check in float64 what only we fool.

    Args:
        model: under attack.
        x: (N, ...) images in [0, 1].
        y: (N,) true classes.
        attack: version "standard"; its eps and norm, and its components.
        title: what model and data are called.
        components: names of components, "autoattack" for the whole; all of them where empty.
        seeds: attack seeds 0 ... seeds - 1.
        batch_size: of pyautoattack.
        report: called with the result so far after each row.
        before: an earlier result; its rows are not computed again where it is of the same model, images and versions.
    """
    if not find_spec("pyautoattack"):
        raise ModuleNotFoundError("Expected pyautoattack to be installed, to compare with: run `make peers`.")
    import pyautoattack

    ours: dict[str, Attack] = {**attack.components(), WHOLE: attack}
    if attack.version != "standard" or any(name not in ours for name in components):
        raise ValueError(f"Expected components of the standard version, {', '.join(ours)}, but got {components!r}.")
    model = model.eval()
    twin = copy.deepcopy(model).double()
    result = BenchResult(
        benchmark="parity",
        command="pclc bench parity",
        notes=(
            f"Robust accuracy of {len(x):,} images of {title} at eps={attack.eps:g} in {attack.norm}, mean over "
            f"{seeds} attack seeds: each component alone on all images, and the whole. Who is fooled is decided in "
            "IEEE float32 for both. A positive difference means that pclc is the weaker; its standard error is "
            "that of the random starts, from the spread over seeds. Images that only pclc fools, over all seeds, "
            "are tried again on a float64 copy of the model, with their norm and range "
            f"checked. pyautoattack runs in batches of {batch_size}.",
        ),
        conditions={**conditions(x.device), "pyautoattack": version("pyautoattack"), "model": str(model_hash(model))},
        rows=(),
    )
    known = {row["attack"]: row for row in before.rows} if before and _is_alike(before, result) else {}
    for name in components or ours:
        if name in known:
            result = replace(result, rows=(*result.rows, known[name]))
            continue
        runs = []
        for seed in range(seeds):
            mine = _timed(partial(ours[name], model, x, y, seed=seed), x)
            peer = _timed(partial(_theirs, pyautoattack, model, x, y, attack, name, seed, batch_size), x)
            runs.append(_compare(model, twin, x, y, mine, peer, attack))
        differences = [100 * (run["ours"] - run["theirs"]) for run in runs]
        accuracies = [100 * mean(run[side] for run in runs) for side in ("ours", "theirs")]
        row = {
            "data": title,
            "attack": name,
            "pclc %": accuracies[0],
            "pyautoattack %": accuracies[1],
            "difference (points)": mean(differences),
            "its standard error": stdev(differences) / seeds**0.5 if seeds > 1 else None,
            "by seed": " ".join(f"{difference:+.2f}" for difference in differences),
            "fooled by pclc only": sum(run["only"] for run in runs),
            "of these in float64": sum(run["hold"] for run in runs),
            "pclc s": mean(run["seconds"] for run in runs),
            "pyautoattack s": mean(run["their seconds"] for run in runs),
        }
        result = replace(result, rows=(*result.rows, row))
        report(result)
    return result


def _is_alike(before: BenchResult, now: BenchResult) -> bool:
    """Whether rows of both may stand in one table: everything but the day is the same."""
    return (before.notes, {**before.conditions, "date": ""}) == (now.notes, {**now.conditions, "date": ""})


def _timed(craft: Callable[[], Tensor], x: Tensor) -> tuple[Tensor, float]:
    begun = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what an attack says of the model is not about parity
        x_adv = craft()
    if x.is_cuda:
        torch.cuda.synchronize()
    return x_adv, time.perf_counter() - begun


def _theirs(
    library: Any,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    attack: AutoAttack,
    name: str,
    seed: int,
    batch_size: int,
) -> Tensor:
    """The adversarial examples of pyautoattack, with the settings of its standard version also for one component."""
    settings = {"eps": attack.eps, "norm": attack.norm, "seed": seed, "device": x.device}
    if name == WHOLE:
        theirs = library.AutoAttack(model, version="standard", **settings)
    else:
        theirs = library.AutoAttack(model, version="custom", attacks=[name], **settings)
        theirs.apgd.n_restarts = theirs.fab.n_restarts = 1  # a custom version has five
    with torch.no_grad():
        classes = model(x[:1]).shape[1]
    theirs.apgd_targeted.n_target_classes = theirs.fab.n_target_classes = min(9, classes - 1)
    x_adv: Tensor = theirs.run_standard_evaluation(x, y, batch_size=batch_size)[0]
    return x_adv.detach()


def _compare(
    model: nn.Module,
    twin: nn.Module,
    x: Tensor,
    y: Tensor,
    ours: tuple[Tensor, float],
    theirs: tuple[Tensor, float],
    attack: AutoAttack,
) -> dict[str, float]:
    fooled, their_fooled = (is_fooled(model, x_adv, y) for x_adv in (ours[0], theirs[0]))
    only = (fooled & ~their_fooled).nonzero().squeeze(1)
    return {
        "ours": 1 - fooled.double().mean().item(),
        "theirs": 1 - their_fooled.double().mean().item(),
        "only": len(only),
        "hold": _hold(twin, x[only], ours[0][only], y[only], attack.eps, attack.norm),
        "seconds": ours[1],
        "their seconds": theirs[1],
    }


def _hold(twin: nn.Module, x: Tensor, x_adv: Tensor, y: Tensor, eps: float, norm: Norm) -> int:
    """How many examples are adversarial in float64: another class predicted, inside the ball and the box."""
    if not len(x):
        return 0
    with torch.no_grad():
        return int((is_inside(x_adv, x, norm, eps) & (twin(x_adv.double()).argmax(1) != y)).sum())
