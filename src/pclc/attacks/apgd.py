"""Auto-PGD: projected gradient ascent with momentum that chooses its own step sizes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.balls import per_row, project, random_step
from pclc.attacks.objectives import directed
from pclc.attacks.registry import register_attack
from pclc.attacks.restarts import Ended, best_attempt
from pclc.attacks.rules import ascent_direction
from pclc.attacks.types import Norm, Stop, keep
from pclc.attacks.validate import check_ball, check_count, check_share
from pclc.attacks.victim import Slope, Victim, is_success

_MOMENTUM = 0.75  # share of the new step; the rest is the step before


class Climb(NamedTuple):
    """Examples on their way up; every tensor has one row per example, so that rows can be dropped together."""

    x: Tensor
    x_adv: Tensor
    before: Tensor  # the point before x_adv
    grad: Tensor  # at x_adv
    value: Tensor  # of the objective, at the point that was looked at last
    best: Tensor  # the point of the largest value, its gradient and value
    best_grad: Tensor
    best_value: Tensor
    size: Tensor  # of a step, (N, 1, ...)
    rises: Tensor  # steps since the last checkpoint that made the value larger
    checked: Tensor  # best_value at the last checkpoint
    halved: Tensor  # whether the step size was halved there


def checkpoints(steps: int) -> dict[int, int]:
    """The numbers of steps after which step sizes are looked at, each with the steps since the one before.

    Example:
        >>> list(checkpoints(100))
        [22, 41, 57, 70, 80, 87, 93, 99]
    """
    window, shorter, shortest = (max(int(share * steps), 1) for share in (0.22, 0.03, 0.06))
    found, at = {}, window
    while at <= steps:
        found[at] = window
        window = max(window - shorter, shortest)
        at += window
    return found


def edge_point(x: Tensor, eps: float, norm: Norm, seed: int, index: Tensor, draw: int) -> Tensor:
    """Where APGD starts: a random direction, as long as the ball allows, clamped to the box."""
    return project(x + random_step(x, eps, norm, seed, index, draw), x, eps, norm)


def auto_pgd(
    victim: Victim,
    goal: Callable[..., Tensor],
    x: Tensor,
    start: Tensor,
    *rows: Tensor,
    eps: float,
    steps: int,
    norm: Norm,
    rho: float,
    targeted: bool,
    stop: Stop,
) -> Ended:
    """One attempt from `start`: make `goal(logits, *rows)` large; the first of `rows` is y.

    With stop="success" an example ends at the first point that fools. With "never", the point of the largest value
    among those that fool. Where none does, the point of the largest value.
    """
    windows = checkpoints(steps)
    place = torch.arange(len(x), device=x.device)
    ended = Ended(x.clone(), torch.zeros_like(place, dtype=torch.bool), x.new_full((len(x),), -torch.inf))
    lowest, highest = torch.full_like(ended.value, -torch.inf), torch.full_like(ended.value, torch.inf)
    size = per_row(x.new_full((len(x),), 2 * eps), x)
    # Nothing is larger than the value before the start, and no step was made that could have been too long.
    climb = Climb(x, start, start, x, highest, start, x, lowest, size, torch.zeros_like(place), lowest, ~ended.fooled)
    for t in range(steps + 1):
        slope = _look(victim, goal, climb, rows, last=t == steps)
        if stop == "success":
            fooled = victim.confirm(slope.logits, climb.x_adv, rows[0], targeted)
            left = (~fooled).nonzero().squeeze(1)
            if len(left) < len(place):
                ended.x_adv[place], ended.fooled[place], ended.value[place] = climb.x_adv, fooled, slope.value
                place, climb, rows, slope = place[left], keep(climb, left), keep(rows, left), keep(slope, left)
                if not len(place):
                    return ended
        else:
            fooled = is_success(slope.logits, rows[0], targeted)
            better = fooled & (~ended.fooled | (slope.value > ended.value))
            x_adv, value = _choose(better, climb.x_adv, ended.x_adv), torch.where(better, slope.value, ended.value)
            ended = Ended(x_adv, ended.fooled | fooled, value)
        climb = _note(climb, slope)
        if t in windows:
            climb = _check(climb, windows[t], rho)
        if t < steps:
            climb = _move(climb, eps, norm, 1.0 if t == 0 else _MOMENTUM)
    never = ~ended.fooled[place]
    ended.x_adv[place] = _choose(never, climb.best, ended.x_adv[place])
    ended.value[place] = torch.where(never, climb.best_value, ended.value[place])
    return ended


def _look(victim: Victim, goal: Callable[..., Tensor], climb: Climb, rows: tuple[Tensor, ...], last: bool) -> Slope:
    """Logits, value and gradient at x_adv; the last point needs no gradient."""
    if last:
        logits = victim.logits(climb.x_adv)
        slope = Slope(logits, goal(logits, *rows), climb.grad)
    else:
        slope = victim.gradient(goal, climb.x_adv, *rows)
    # Where fp16 overflowed there is no number: no class either, so that the point seems to fool, but it is the worst.
    return slope._replace(value=slope.value.to(climb.value.dtype).nan_to_num(-torch.inf, torch.inf, -torch.inf))


def _choose(which: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """Rows of `yes` where `which` is true, rows of `no` elsewhere."""
    return torch.where(per_row(which, yes), yes, no)


def _note(climb: Climb, slope: Slope) -> Climb:
    """Remember the value at x_adv, and the best point."""
    value = slope.value
    better = value > climb.best_value
    return climb._replace(
        grad=slope.grad,
        value=value,
        rises=climb.rises + (value > climb.value),
        best=_choose(better, climb.x_adv, climb.best),
        best_grad=_choose(better, slope.grad, climb.best_grad),
        best_value=torch.where(better, value, climb.best_value),
    )


def _check(climb: Climb, window: int, rho: float) -> Climb:
    """Halve the step and go back to the best point, where too few steps rose or the best value stands still."""
    still = ~climb.halved & (climb.checked >= climb.best_value)
    halve = (climb.rises <= rho * window) | still
    return climb._replace(
        x_adv=_choose(halve, climb.best, climb.x_adv),
        grad=_choose(halve, climb.best_grad, climb.grad),
        size=_choose(halve, climb.size / 2, climb.size),
        rises=torch.zeros_like(climb.rises),
        checked=climb.best_value,
        halved=halve,
    )


def _move(climb: Climb, eps: float, norm: Norm, share: float) -> Climb:
    """A step along the gradient, then a mixture of it with the step before."""
    here = climb.x_adv
    ahead = project(here + climb.size * ascent_direction(climb.grad, norm), climb.x, eps, norm)
    mixed = here + share * (ahead - here) + (1 - share) * (here - climb.before)
    return climb._replace(x_adv=project(mixed, climb.x, eps, norm), before=here)


@register_attack("apgd")
@dataclass(frozen=True, repr=False)
class APGD(Attack):
    r"""Auto-PGD (Croce and Hein, ICML 2020, arXiv 2003.01690).

    $$z_{t+1} = \Pi_{\varepsilon}\big(x_t + \eta_t\, s(\nabla_x L(x_t, y))\big), \qquad
    x_{t+1} = \Pi_{\varepsilon}\big(x_t + \tfrac34 (z_{t+1} - x_t) + \tfrac14 (x_t - x_{t-1})\big),$$

    with s and the projection of :class:`PGD`, $\eta_0 = 2 \varepsilon$, from a random point at the edge of the ball. At
    checkpoints (after 22 % of the steps, then at distances that shrink by 3 % down to 6 %) each example's step size is
    halved, and it goes back to its best point, where at most the share $\rho$ of the steps since the last checkpoint
    made L larger, or where the step size was not halved there and the best L has not changed since.

    It follows the authors' code, but for one comparison, which is the paper's: whether the first step rose is judged by
    L at the start, where the code compares with 0. There is no L1.

    Args:
        eps: radius of the ball.
        steps: number of steps.
        norm: "Linf" or "L2".
        restarts: attempts, each from another random point. Kept is one that fools; where none does, and with
            stop="never", the one of the largest objective (those that fool first).
        objective: what is maximised, a registered name with an optional logit scale: "ce", "dlr", ...
        rho: share of rising steps at which the step size is still halved.
        targeted: `y` is the class to reach.
        stop: "success" returns the first point that fools; "never" spends the whole budget and returns the point of the
            largest objective among those that fool. Where none does, both return the point of the largest objective.

    Cost: `restarts * (steps + 1)` forward and `restarts * steps` backward passes, two more forward passes.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> attack = APGD(eps=0.3, steps=10)
        >>> attack.run(model, torch.tensor([[0.75, 0.25]]), torch.tensor([0])).success
        tensor([True])
        >>> print(attack)
        apgd(eps=0.3, steps=10)
    """

    eps: float
    steps: int = 100
    norm: Norm = "Linf"
    restarts: int = 1
    objective: str = "ce"
    rho: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_count("steps", self.steps)
        check_count("restarts", self.restarts)
        directed(self.objective, self.targeted)
        check_share("rho", self.rho)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        goal = directed(self.objective, self.targeted)
        settings = {name: getattr(self, name) for name in ("eps", "steps", "norm", "rho", "targeted", "stop")}

        def attempt(number: int, rows: Tensor) -> Ended:
            start = edge_point(x[rows], self.eps, self.norm, seed, index[rows], draw=number)
            return auto_pgd(victim, goal, x[rows], start, y[rows], **settings)

        return best_attempt(self.restarts, attempt, x, self.stop)
