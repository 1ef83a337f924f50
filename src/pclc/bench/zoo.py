"""The audit of the audit: models whose robustness is known, and how often the verdict is wrong."""

import multiprocessing
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

import pclc
from pclc.attacks import APGD, EOT, Attack, AutoAttack, ProbabilityMargin, Square, Transfer
from pclc.attacks.decide import is_fooled
from pclc.bench.result import BenchResult, conditions
from pclc.bench.zoo_models import Built, Member, zoo
from pclc.data.dataset import Dataset
from pclc.evaluation.audit import LEAST, LINE
from pclc.evaluation.audit.breaks import has_gradient
from pclc.evaluation.audit.ladder import Mode, claim_attack
from pclc.evaluation.audit.randomness import score
from pclc.evaluation.audit.standing import run_quietly
from pclc.execution import Execution

# From here on a claim is plainly false: twice the lines of the audit, so that a verdict may be asked for.
FALSE, FALSE_POINTS = 2 * LINE, 2 * LEAST
_AUDITED = 200  # of the 360 test images, drawn at random; the truth is about all of them
_DRAWS = 50


def bench_zoo(
    mode: Mode = "standard",
    seeds: int = 3,
    workers: int = 2,
    only: Sequence[str] = (),
    report: Callable[[BenchResult], None] = lambda result: None,
) -> BenchResult:
    """Build, audit and judge every member; `only` names families. `report` sees what is there after each of them."""
    families = dict.fromkeys(member.family for member in zoo(seeds))
    if not families.keys() >= set(only):
        raise ValueError(f"Expected families of the zoo, {', '.join(families)}, but got {', '.join(only)}.")
    members = [member for member in zoo(seeds) if not only or member.family in only]
    rows: list[dict[str, Any]] = []
    # Each process has a thread of its own; models are built where they are audited.
    with multiprocessing.get_context("spawn").Pool(workers, initializer=_one_thread) as pool:
        for row in pool.imap(_work, [(member.name, seeds, mode) for member in members]):
            rows.append(row)
            result = BenchResult(
                benchmark="zoo",
                command="pclc bench zoo",
                notes=_notes(mode, rows),
                conditions=conditions(torch.device("cpu")),
                rows=tuple(rows),
            )
            report(result)
    return result


def judge_member(member: Member, mode: Mode, seed: int) -> dict[str, Any]:
    """Build one model, audit it on a part of the test images, and find the truth on all of them."""
    train, test = _digits()
    built = member.build(train)
    x, y = test.images.float() / 255, test.labels
    chosen = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))[:_AUDITED]
    started = time.perf_counter()
    found = pclc.audit(built.model, x[chosen], y[chosen], eps=member.eps, mode=mode, seed=seed, index=chosen)
    seconds = time.perf_counter() - started
    claimed, left = truth(built, x, y, member.eps)
    certified = None if built.certify is None else float(built.certify(x, y, member.eps).double().mean())
    overstated = 1 - left / claimed if claimed else 0.0
    return {
        "model": member.name,
        "family": member.family,
        "made to be": "honest" if member.honest else "hollow",
        "claimed %": 100 * claimed,
        "truth %": 100 * left,
        "certified %": None if certified is None else 100 * certified,
        "overstated %": 100 * overstated,
        "the claim is": label(claimed, left),
        "verdict": found.verdict,
        "bound %": 100 * found.overstatement.bound,
        "worst case found %": 100 * found.robust_accuracy.value,
        "fired": "; ".join(finding.name for finding in found.fired) or "-",
        "seconds": seconds,
    }


@cache
def _digits() -> tuple[Dataset, Dataset]:
    return pclc.load_dataset("digits"), pclc.load_dataset("digits", "test")


def label(claimed: float, left: float) -> str:
    """What the claim is, by the reference alone: "true" within the lines, "false" beyond twice the lines, or between.

    Example:
        >>> label(0.5, 0.48), label(0.5, 0.4), label(0.5, 0.1), label(0.01, 0.0)
        ('true', 'between', 'false', 'true')
    """
    lost, points = (1 - left / claimed if claimed else 0.0), claimed - left
    if lost <= LINE or points <= LEAST:
        return "true"
    return "false" if lost > FALSE and points > FALSE_POINTS else "between"


def truth(built: Built, x: Tensor, y: Tensor, eps: float) -> tuple[float, float]:
    """What PGD-40 claims of all images, and what is left after attacks that know how the model was made.

    Margins and probability margins from two starts each and standard AutoAttack, on the model where it has a gradient;
    the first two also by transfer from the network inside it, where the model hides one; Square with 5,000 queries.
    Random models are attacked through means over 32 draws, and scored by 50 fresh ones.
    """
    model, execution = built.model, Execution(device="cpu")
    index = torch.arange(len(x))
    claim = run_quietly(claim_attack("Linf", eps), model, x, y, 1, index, execution)
    inner: list[Attack] = [
        APGD(eps, 100, restarts=2, objective="margin"),
        ProbabilityMargin(eps, 100, restarts=2, logit_scale=0.1),
        AutoAttack(eps),
    ]
    if _is_random(model, x):
        scores = score(model, claim, y, execution, _DRAWS)
        best, x_best = scores.clone(), claim
        attacks: list[Attack] = [Transfer(inner[0], built.plain), EOT(APGD(eps, 50, objective="margin"), 32)]
        for attack in attacks:
            x_adv = run_quietly(attack, model, x, y, 1, index, execution)
            now = score(model, x_adv, y, execution, _DRAWS)
            better = (now < best).reshape(-1, 1, 1, 1)
            x_best, best = torch.where(better, x_adv, x_best), torch.minimum(now, best)
        return float(scores.mean()), float(score(model, x_best, y, execution, _DRAWS).mean())
    clean = ~is_fooled(model, x, y, execution=execution)
    claimed = clean & ~is_fooled(model, claim, y, execution=execution)
    left = claimed.clone()
    attacks = [Transfer(attack, built.plain) for attack in inner[:2]] if built.plain is not model else []
    attacks += inner if has_gradient(model, x[:2]) else [Square(eps)]
    for attack in attacks:
        if left.any():
            x_adv = run_quietly(attack, model, x[left], y[left], 1, index[left], execution)
            left[left.clone()] = ~is_fooled(model, x_adv, y[left], execution=execution)
    return float(claimed.double().mean()), float(left.double().mean())


def _is_random(model: torch.nn.Module, x: Tensor) -> bool:
    with torch.no_grad():
        return not torch.equal(model(x), model(x))


def _work(job: tuple[str, int, Mode]) -> dict[str, Any]:
    name, seeds, mode = job
    number, member = next((i, member) for i, member in enumerate(zoo(seeds)) if member.name == name)
    return judge_member(member, mode, seed=number)


def _one_thread() -> None:
    torch.set_num_threads(1)


def _notes(mode: str, rows: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    return (
        f"Each of {len(rows)} models was audited in mode {mode} on {_AUDITED} random test images of digits; the truth "
        "is about all 360, by attacks that know how the model was made. The claim is true where the truth lies within "
        f"the lines of the audit ({LINE:.0%} of the claim, {100 * LEAST:g} points), false beyond twice the lines.",
    )
