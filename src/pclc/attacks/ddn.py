"""Decoupled direction and norm: the smallest perturbation in L2 that fools, in few steps."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pclc.attacks import random
from pclc.attacks.attack import Attack
from pclc.attacks.balls import row_norms
from pclc.attacks.gradients import is_zero
from pclc.attacks.objectives import in_full, log_odds
from pclc.attacks.registry import register_attack
from pclc.attacks.rules import ascent_direction
from pclc.attacks.validate import check_count, check_number
from pclc.attacks.victim import Victim, is_success

_LAST_STEP = 0.01


def ddn(
    victim: Victim,
    x: Tensor,
    y: Tensor,
    seed: int,
    index: Tensor,
    *,
    steps: int,
    init_norm: float,
    gamma: float,
    levels: int | None,
    targeted: bool,
) -> Tensor:
    """The work of :class:`DDN`, without its checks: x is in [0, 1], y in [0, K)."""
    sign = 1 if targeted else -1

    def goal(logits: Tensor, y: Tensor) -> Tensor:
        return sign * log_odds(in_full(logits), y)

    anywhere = ascent_direction(random.normal(x.shape[1:], seed, index, dtype=x.dtype), "L2")
    furthest = row_norms(torch.maximum(x, 1 - x))
    x_adv, radius = x, torch.full_like(furthest, init_norm)
    best, best_norm = x.clone(), x.new_full((len(x),), torch.inf)
    for t in range(steps):
        slope = victim.gradient(goal, x_adv, y)
        fooled = is_success(slope.logits, y, targeted)
        norm = row_norms(x_adv - x).flatten()
        closer = (fooled & (norm < best_norm)).nonzero().squeeze(1)
        if len(closer):
            confirmed = closer[victim.confirm(slope.logits[closer], x_adv[closer], y[closer], targeted)]
            best[confirmed], best_norm[confirmed] = x_adv[confirmed], norm[confirmed]
        dead = is_zero(slope.grad).reshape(radius.shape)
        direction = torch.where(dead, anywhere, ascent_direction(slope.grad, "L2"))
        alpha = _LAST_STEP + (1 - _LAST_STEP) * (1 + math.cos(math.pi * t / steps)) / 2
        # Not a choice of two plain numbers, which would be of torch's default type.
        radius = torch.where(fooled.reshape(radius.shape), (1 - gamma) * radius, (1 + gamma) * radius).minimum(furthest)
        delta = ascent_direction(x_adv - x + alpha * direction, "L2")
        x_adv = (x + radius * delta).clamp(0, 1)
        if levels is not None:
            x_adv = (x_adv * (levels - 1)).round() / (levels - 1)
    return best


@register_attack("ddn")
@dataclass(frozen=True, repr=False)
class DDN(Attack):
    r"""Decoupled direction and norm (Rony et al., CVPR 2019, arXiv 1811.09600).

    The direction follows the gradient of cross-entropy, the norm follows the outcome: smaller by the factor
    $1 - \gamma$ after a point that fools, larger by $1 + \gamma$ after one that does not,

    $$\delta_{t+1} = \varepsilon_{t+1}\, u / \|u\|_2, \qquad u = \delta_t + \alpha_t\, g / \|g\|_2, \qquad
    \varepsilon_{t+1} = (1 \mp \gamma)\, \varepsilon_t, \qquad \delta_0 = 0,$$

    clipped to the box, with $\alpha_t$ from 1 to 0.01 along half a cosine. No norm is bounded: the nearest example that
    fools is returned, and x itself where none was found. As in the authors' code the last of these points is not tried.

    g is the gradient of the log-odds of y, which has the direction of cross-entropy's but is not zero where the softmax
    is saturated. Where it is zero all the same, the step takes a random direction, the same in every step of an example
    (the authors' code draws a new one each time).

    Args:
        steps: number of steps; the authors take 100, 300 and 1000.
        init_norm: $\varepsilon_0$.
        gamma: in (0, 1), by which the norm changes.
        levels: round pixels to this number of values in [0, 1], 256 for images of 8 bits; None leaves them as they are.
        targeted: `y` is the class to reach.
        stop: "success" leaves examples alone that are fooled before the attack; the others are always searched to the
            end, because their distance is wanted.

    Cost: `steps` forward and backward passes, two more forward passes.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> x = torch.tensor([[0.75, 0.25]])
        >>> x_adv = DDN()(model, x, torch.tensor([0]))
        >>> print(f"{(x_adv - x).norm():.2f}")  # the boundary is at 0.3536
        0.35
    """

    steps: int = 100
    init_norm: float = 1.0
    gamma: float = 0.05
    levels: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("steps", self.steps)
        check_number("init_norm", self.init_norm, positive=True)
        check_number("gamma", self.gamma, positive=True)
        if self.gamma >= 1:
            raise ValueError(f"Expected `gamma` to be below 1, but got {self.gamma!r}.")
        if self.levels is not None:
            check_count("levels", self.levels)
            if self.levels == 1:
                raise ValueError("Expected `levels` to be at least 2, but got 1.")

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        settings = {name: value for name, value in vars(self).items() if name != "stop"}
        return ddn(victim, x, y, seed, index, **settings)
