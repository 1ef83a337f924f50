"""Several attempts at each example, the best of which is kept."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks.objectives import Objective
from pclc.attacks.types import Stop, keep
from pclc.attacks.victim import Victim, is_success

Attempt = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # number of the attempt, x, y, index to x_adv


class Ended(NamedTuple):
    """What one attempt comes to, one row per example."""

    x_adv: Tensor
    fooled: Tensor
    value: Tensor  # of the objective at x_adv


def best_attempt(count: int, attempt: Callable[[int, Tensor], Ended], x: Tensor, stop: Stop) -> Tensor:
    """The best of `count` attempts at each row of x: one that fools first, then the one of the largest value.

    `attempt` takes its number and the numbers of the rows that it is for. With stop="success" an example that was
    fooled gets no further attempt.
    """
    place = torch.arange(len(x), device=x.device)
    best = attempt(0, place)
    for number in range(1, count):
        todo = place[~best.fooled] if stop == "success" else place
        if not len(todo):
            break
        now, old = attempt(number, todo), keep(best, todo)
        better = (now.fooled & ~old.fooled) | ((now.fooled == old.fooled) & (now.value > old.value))
        for kept, new in zip(best, now, strict=True):
            kept[todo[better]] = new[better]
    return best.x_adv


def best_of(
    attempts: int,
    attempt: Attempt,
    victim: Victim,
    x: Tensor,
    y: Tensor,
    index: Tensor,
    *,
    objective: Objective,
    targeted: bool,
    stop: Stop,
) -> Tensor:
    """The same of attempts that do not tell what they come to: each is judged by one forward pass.

    A single one needs no judge.
    """
    if attempts == 1:
        return attempt(0, x, y, index)

    def judged(number: int, rows: Tensor) -> Ended:
        x_adv = attempt(number, x[rows], y[rows], index[rows])
        logits = victim.exact_logits(x_adv)
        return Ended(x_adv, is_success(logits, y[rows], targeted), objective(logits, y[rows]))

    return best_attempt(attempts, judged, x, stop)
