"""Models that are random themselves: expected errors over fresh draws, and attacks through means over draws."""

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks import APGD, EOT, Attack, Noise, ProbabilityMargin, Square
from pclc.attacks.decide import is_fooled
from pclc.attacks.frozen import frozen
from pclc.attacks.suspicions import shares_draws
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim
from pclc.evaluation.audit.ladder import Mode, Threat, claim_attack, transfers
from pclc.evaluation.audit.standing import Step, run_quietly
from pclc.evaluation.budget import by_row, is_inside
from pclc.execution import Execution

DRAWS = 20  # of a score
GAIN = 0.01  # of the mean score; EOT is doubled until it gains less
_MOST_DRAWS: dict[Mode, int] = {"quick": 4, "standard": 16, "full": 64}
_QUERIES: dict[Mode, int] = {"quick": 100, "standard": 500, "full": 1000}
_BLIND_DRAWS = 8
_STEPS: dict[Mode, int] = {"quick": 20, "standard": 40, "full": 100}


class RandomOutcome(NamedTuple):
    """What is left of a random model.

    Attributes:
        clean, claimed, worst: (N,) scores in [0, 1], shares of fresh draws that are right.
        x_adv: (N, ...) the final candidates.
        gain: what the last doubling of the draws took from the mean score; None where there is no gradient to climb.
        steps: what was tried.
    """

    clean: Tensor
    claimed: Tensor
    worst: Tensor
    x_adv: Tensor
    gain: float | None
    steps: tuple[Step, ...]


def score(model: Model, x: Tensor, y: Tensor, execution: Execution, draws: int = DRAWS) -> Tensor:
    """(N,) shares of `draws` fresh passes in which the model is right; passes are as large as `execution` says."""
    right = torch.stack([~is_fooled(model, x, y, execution=execution) for _ in range(draws)])
    return right.double().mean(0)


def attack_random(
    model: Model,
    craft: Model,
    x: Tensor,
    y: Tensor,
    index: Tensor,
    threat: Threat,
    mode: Mode,
    seed: int,
    execution: Execution,
    advance: Callable[[str, int], None],
) -> RandomOutcome:
    """Attack through means over draws, which are doubled until that gains no more.

    Transfers from a twin come before them, where there is one. Square comes after them in mode "full", and in every
    mode where there is no gradient.

    Candidates are chosen by some draws and scored by fresh ones, so that the luck of the choice is not in the score. A
    model that draws once for all images of a pass is scored image by image: bounds ask for independent scores.
    """
    norm, eps = threat.norm, threat.eps
    steps: list[Step] = []
    claim = claim_attack(norm, eps)

    def candidates(attack: Attack, through: Model) -> Tensor:
        found = run_quietly(attack, through, x, y, seed, index, execution)
        return by_row(is_inside(found, x, norm, eps), found, x)

    with frozen(model), Victim(model, execution) as victim:
        fresh = replace(execution, batch_size=1) if shares_draws(victim, x) else execution
    x_adv = candidates(claim, model)  # nothing mended, as whoever claims it has it
    clean, claimed = score(model, x, y, fresh), score(model, x_adv, y, fresh)
    best = score(model, x_adv, y, execution)
    advance(str(claim), len(x))

    def attempt(attack: Attack, blind: bool = False) -> None:
        started = time.perf_counter()
        before = float(best.mean())
        new = candidates(attack, craft)
        scores = score(model, new, y, execution)
        better = scores < best
        x_adv[better], best[better] = new[better], scores[better]
        broke = round((before - float(best.mean())) * len(x))
        steps.append(Step(str(attack), len(x), broke, time.perf_counter() - started, blind))
        advance(str(attack), len(x))

    attempt(Noise(eps, norm=norm), blind=True)
    for transfer in transfers(threat):
        attempt(replace(transfer, stop="never"), blind=True)
    draws, gain = 1, 1.0
    while threat.differentiable and gain >= GAIN and draws < _MOST_DRAWS[mode]:
        before, draws = float(best.mean()), 2 * draws
        attempt(EOT(APGD(eps, _STEPS[mode], norm=norm, objective="margin"), draws))
        attempt(EOT(ProbabilityMargin(eps, _STEPS[mode], norm=norm, restarts=1, logit_scale=0.1), draws))
        gain = before - float(best.mean())
    if mode == "full" or not threat.differentiable:
        attempt(EOT(Square(eps, _QUERIES[mode], norm=norm), _BLIND_DRAWS), blind=True)
    worst = score(model, x_adv, y, fresh)
    return RandomOutcome(clean, claimed, worst, x_adv, gain if threat.differentiable else None, tuple(steps))
