"""Several attempts at each example, the best of which is kept."""

from collections.abc import Callable

import torch
from torch import Tensor

from pclc.attacks.objectives import Objective
from pclc.attacks.types import Stop
from pclc.attacks.victim import Victim, is_success

Attempt = Callable[[int, Tensor, Tensor, Tensor], Tensor]  # number of the attempt, x, y, index to x_adv


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
    """The best of `attempts` results for each example: one that fools first, then the one of the largest objective.

    With stop="success" an example that was fooled gets no further attempt. Each attempt is judged by one forward pass;
    a single one needs no judge.
    """
    best = attempt(0, x, y, index)
    if attempts == 1:
        return best

    def judge(x_adv: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = victim.exact_logits(x_adv)
        return is_success(logits, y, targeted), objective(logits, y)

    fooled, value = judge(best, y)
    for number in range(1, attempts):
        todo = (~fooled if stop == "success" else torch.ones_like(fooled)).nonzero().squeeze(1)
        if not len(todo):
            break
        x_adv = attempt(number, x[todo], y[todo], index[todo])
        now_fooled, now_value = judge(x_adv, y[todo])
        better = (now_fooled & ~fooled[todo]) | ((now_fooled == fooled[todo]) & (now_value > value[todo]))
        place = todo[better]
        best[place], fooled[place], value[place] = x_adv[better], now_fooled[better], now_value[better]
    return best
