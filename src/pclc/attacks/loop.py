"""The loop of the whole iterative family: start, gradient of the objective, step rule and projection are the parts."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks.balls import project
from pclc.attacks.gradients import input_gradient
from pclc.attacks.objectives import Objective
from pclc.attacks.rules import Rule
from pclc.attacks.types import Model, Norm, Stop, keep
from pclc.attacks.victim import Victim


class Rows(NamedTuple):
    """Examples under attack; every tensor has one row per example, so that rows can be dropped together."""

    x: Tensor
    y: Tensor
    place: Tensor  # in the data set: the index to which random numbers belong
    x_adv: Tensor
    memory: Tensor  # of the step rule


class Move(NamedTuple):
    """What one step gives: the rows after it, and the logits at the point before it."""

    rows: Rows
    logits: Tensor


Gradient = Callable[[Rows, int], tuple[Tensor, Tensor]]  # at step t: logits at x_adv, gradient
Projection = Callable[[Tensor, Tensor], Tensor]  # (x_adv, x) to the nearest allowed point
Step = Callable[[Rows, int], Move]


def autograd_gradient(model: Model, objective: Objective) -> Gradient:
    """The gradient by back-propagation, as a pure function of tensors, which may be captured in a larger step."""

    def gradient(rows: Rows, t: int) -> tuple[Tensor, Tensor]:
        logits, _, grad = input_gradient(model, objective, rows.x_adv, rows.y)
        return logits, grad

    return gradient


def victim_gradient(victim: Victim, objective: Objective) -> Gradient:
    """The gradient by back-propagation, in batches, every pass counted."""

    def gradient(rows: Rows, t: int) -> tuple[Tensor, Tensor]:
        slope = victim.gradient(objective, rows.x_adv, rows.y)
        return slope.logits, slope.grad

    return gradient


def make_step(gradient: Gradient, rule: Rule, project: Projection) -> Step:
    """One step: a gradient, a move by the rule, a projection."""

    def step(rows: Rows, t: int) -> Move:
        logits, grad = gradient(rows, t)
        update, memory = rule(grad, rows.memory, t)
        moved = rows._replace(x_adv=project(rows.x_adv + update, rows.x), memory=memory)
        return Move(moved, logits)

    return step


def ascend(
    victim: Victim,
    gradient: Gradient,
    rule: Rule,
    rows: Rows,
    *,
    eps: float,
    norm: Norm,
    steps: int,
    targeted: bool,
    stop: Stop,
) -> Tensor:
    """Take `steps` steps inside the ball and the box, and return the last iterates, (N, ...), in the order of `rows`.

    With stop="success" a row that is fooled keeps the iterate that fooled it and leaves the batch: the logits that come
    with each gradient tell, so that this costs no pass. What a row goes through until then does not depend on the
    others. The last iterate has no gradient, hence no logits: whoever wants to know looks at it with one more pass.
    With "never" nothing here waits for the device.
    """
    step = make_step(gradient, rule, partial(project, eps=eps, norm=norm))
    x_adv = rows.x_adv.clone()
    place = torch.arange(len(x_adv), device=x_adv.device)
    for t in range(steps):
        move = step(rows, t)
        if stop == "success":
            left = (~victim.confirm(move.logits, rows.x_adv, rows.y, targeted)).nonzero().squeeze(1)
            if len(left) < len(place):
                x_adv[place] = rows.x_adv
                place, move = place[left], move._replace(rows=keep(move.rows, left))
                if not len(place):
                    return x_adv
        rows = move.rows
    x_adv[place] = rows.x_adv
    return x_adv
