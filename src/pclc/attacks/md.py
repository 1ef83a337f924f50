"""The margin decomposition attack: one term of the margin alone, then the whole."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.balls import random_point
from pclc.attacks.loop import Rows, ascend
from pclc.attacks.objectives import Objective, best_other, in_full, margin, of_class
from pclc.attacks.registry import register_attack
from pclc.attacks.restarts import best_of
from pclc.attacks.rules import Rule, ascent_direction
from pclc.attacks.types import Norm, Stop
from pclc.attacks.validate import check_ball, check_count, check_number
from pclc.attacks.victim import Victim


class Terms(NamedTuple):
    """A margin and its two terms, each large where class y is not predicted."""

    true: Objective
    other: Objective
    margin: Objective


MARGIN = Terms(lambda logits, y: -of_class(logits, y), best_other, margin)


def cosine_steps(eps: float, steps: int, switch: float, norm: Norm) -> Rule:
    """Steps from 2 eps downwards along half a cosine, which begins again at the switch."""
    change = switch * steps

    def rule(grad: Tensor, memory: Tensor, t: int) -> tuple[Tensor, Tensor]:
        since = t - 1 - (change if t > change else 0)
        alpha = eps * (1 + math.cos(math.pi * since / (steps - change)))
        return alpha * ascent_direction(grad, norm), memory

    return rule


def two_stages(
    victim: Victim,
    x: Tensor,
    y: Tensor,
    seed: int,
    index: Tensor,
    *,
    terms: Terms,
    eps: float,
    steps: int,
    switch: float,
    norm: Norm,
    restarts: int,
    targeted: bool,
    stop: Stop,
) -> Tensor:
    """The work of :class:`MD`, without its checks, for any margin: x is in [0, 1], y in [0, K)."""
    sign = -1 if targeted else 1
    true, other, whole = (_times(term, sign) for term in terms)
    away = _times(terms.true, -sign)
    rule = cosine_steps(eps, steps, switch, norm)

    def attempt(number: int, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
        first = other if number % 2 else true

        def gradient(rows: Rows, t: int) -> tuple[Tensor, Tensor]:
            goal = away if t == 0 else first if t < switch * steps else whole
            slope = victim.gradient(goal, rows.x_adv, rows.y)
            return slope.logits, slope.grad

        start = random_point(x, eps, norm, seed, index, draw=number)
        rows = Rows(x, y, index, start, x.new_empty(len(x), 0))
        return ascend(victim, gradient, rule, rows, eps=eps, norm=norm, steps=steps, targeted=targeted, stop=stop)

    return best_of(restarts, attempt, victim, x, y, index, objective=whole, targeted=targeted, stop=stop)


def _times(term: Objective, factor: int) -> Objective:
    return lambda logits, y: factor * term(in_full(logits), y)


def check_switch(switch: object) -> None:
    """Refuse a share that is not in [0, 0.5], where the first stage's steps would grow again."""
    check_number("switch", switch)
    if switch > 0.5:  # type: ignore[operator]
        raise ValueError(f"Expected `switch` to be a share of the steps, at most 0.5, but got {switch!r}.")


@register_attack("md")
@dataclass(frozen=True, repr=False)
class MD(Attack):
    r"""The margin decomposition attack (Ma, Jiang et al., arXiv 2006.13726, Machine Learning 2023).

    The margin $\max_{k \neq y} z_k - z_y$ has two terms. Where the gradient of one outweighs that of the other, and
    leads nowhere, an attack on the whole is stuck ("imbalanced gradients"). So an attempt goes, from a random point,

    $$x_{t+1} = \Pi_{\varepsilon}\big(x_t + \alpha_t\, s(\nabla L_t(x_t))\big), \qquad L_t = \begin{cases}
    z_y & t = 0 \\ -z_y \text{ or } \max_{k \neq y} z_k & 0 < t < sT \\ \max_{k \neq y} z_k - z_y & t \geq sT,
    \end{cases} \qquad \alpha_t = \varepsilon \Big(1 + \cos \pi \frac{t - 1 - [t > sT]\, sT}{T - sT}\Big)$$

    with T steps and the share s before the switch; attempts take the two terms in turn. This is the schedule of the
    authors' code, with its first step towards a larger $z_y$ and its step sizes from 2 eps down, twice. Differences:
    random points are clamped to the box, and there is L2, with steps of unit norm.

    A step of 2 eps along signs forgets where it came from. In Linf, attempts on the same term therefore differ only
    where the gradient has other signs at another random point: on a smooth model more than 2 `restarts` gain little.

    Args:
        eps: radius of the ball.
        steps: of one attempt. The authors take 50; Xie et al. (arXiv 2411.15210) take 100.
        switch: share of the steps after which the whole margin is followed; the authors' 20 of 50.
        norm: "Linf" or "L2".
        restarts: attempts, $-z_y$ first in the first, $\max_{k \neq y} z_k$ first in the second, and so on: 2 is what
            the authors call one random start.
        targeted: `y` is the class to reach; every objective changes its sign.
        stop: "success" or "never", see `Attack`.

    Cost: `restarts * steps` forward and backward passes, one forward pass a restart where there are several, two more.

    Example:
        >>> import torch
        >>> x = torch.rand(5, 4)
        >>> x_adv = MD(eps=0.1, steps=10)(torch.nn.Linear(4, 3), x, torch.tensor([0, 1, 2, 0, 1]))
        >>> bool(((x_adv - x).abs() <= 0.1 + 1e-6).all())
        True
        >>> print(MD(eps=8/255))
        md(eps=8/255)
    """

    eps: float
    steps: int = 100
    switch: float = 0.4
    norm: Norm = "Linf"
    restarts: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_count("steps", self.steps)
        check_switch(self.switch)
        check_count("restarts", self.restarts)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return two_stages(victim, x, y, seed, index, terms=MARGIN, **vars(self))
