"""Simultaneous perturbation stochastic approximation: gradients estimated from logits alone."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pclc.attacks import random
from pclc.attacks.attack import Attack
from pclc.attacks.balls import per_row
from pclc.attacks.gradients import is_zero
from pclc.attacks.loop import Gradient, Rows, ascend
from pclc.attacks.objectives import Objective, directed
from pclc.attacks.registry import register_attack
from pclc.attacks.rules import adam
from pclc.attacks.types import Norm
from pclc.attacks.validate import check_ball, check_count, check_number, warn_if_unreachable
from pclc.attacks.victim import Victim

_IMAGES_A_PASS = 4096


def estimated_gradient(victim: Victim, objective: Objective, seed: int, delta: float, samples: int) -> Gradient:
    r"""The mean of $(L(x + \delta v) - L(x - \delta v))\, v / 2\delta$ over random signs v of the shape of x.

    The signs belong to (seed, index, step, sample). Samples are drawn and asked together, 4096 images at a time, or two
    for each example where that is more.
    """

    @torch.no_grad()
    def gradient(rows: Rows, t: int) -> tuple[Tensor, Tensor]:
        x, N = rows.x_adv, len(rows.x_adv)
        shape = x.shape[1:]
        total = torch.zeros_like(x)
        together = max(1, _IMAGES_A_PASS // (2 * N))
        for first in range(0, samples, together):
            draws = torch.arange(first, min(first + together, samples), device=x.device)
            S = len(draws)
            v = random.signs(shape, seed, rows.place.repeat(S), t, draws.repeat_interleave(N), x.dtype)
            centre, y = x.repeat(S, *[1] * len(shape)), rows.y.repeat(2 * S)
            ahead, behind = objective(victim.logits(torch.cat([centre + delta * v, centre - delta * v])), y).chunk(2)
            slope = per_row(((ahead - behind) / (2 * delta)).to(x.dtype), v)
            slope = torch.where(slope.isfinite(), slope, 0)  # outside of the box a model may have no logits
            total += (slope * v).reshape(S, N, *shape).sum(0)
        victim.cost.add_gradients(is_zero(total), forwards=0, backwards=0)
        return victim.logits(x), total / samples

    return gradient


@register_attack("spsa")
@dataclass(frozen=True, repr=False)
class SPSA(Attack):
    r"""Adam on gradients that are estimated from logits (Uesato et al., ICML 2018, arXiv 1802.05666).

    $$\hat g = \frac{1}{S} \sum_{s=1}^{S} \frac{L(x_t + \delta v_s, y) - L(x_t - \delta v_s, y)}{2 \delta}\, v_s,
    \qquad v_s \in \{-1, 1\}^d \text{ at random}, \qquad
    x_{t+1} = \Pi_{\varepsilon}\big(x_t + \text{Adam}(\hat g)\big), \qquad x_0 = x.$$

    It needs no gradient of the model, so that it also works where gradients are masked. Adam moves a pixel by about
    `lr` per step, so `lr * steps` has to reach eps. As in the authors' code the model is also asked slightly outside of
    the box, at $x_t \pm \delta v$; where its logits there are not finite, the sample counts as a slope of zero.

    Args:
        eps: radius of the ball.
        lr: Adam's learning rate.
        delta: distance at which the slope is measured.
        steps: number of steps.
        samples: random directions per step.
        norm: "Linf" or "L2" (Adam's step, projected onto that ball).
        objective: what is maximised, a registered name with an optional logit scale.
        targeted: `y` is the class to reach.
        stop: "success" or "never", see `Attack`.

    Cost: `steps * (2 * samples + 1)` forward passes, two more; no backward pass.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> attack = SPSA(eps=0.3, lr=0.1, steps=3, samples=8)
        >>> attack.run(model, torch.tensor([[0.75, 0.25]]), torch.tensor([0])).success
        tensor([True])
    """

    eps: float
    lr: float = 0.01
    delta: float = 0.01
    steps: int = 100
    samples: int = 128
    norm: Norm = "Linf"
    objective: str = "margin"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_number("lr", self.lr, positive=True)
        check_number("delta", self.delta, positive=True)
        check_count("steps", self.steps)
        check_count("samples", self.samples)
        directed(self.objective, self.targeted)
        if self.norm == "Linf":  # in L2 a step of lr in every pixel is longer than lr
            warn_if_unreachable(self.eps, self.lr, self.steps, "lr")

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        goal = directed(self.objective, self.targeted)
        return ascend(
            victim,
            estimated_gradient(victim, goal, seed, self.delta, self.samples),
            adam(self.lr),
            Rows(x, y, index, x, x.new_zeros(len(x), 2, *x.shape[1:])),
            eps=self.eps,
            norm=self.norm,
            steps=self.steps,
            targeted=self.targeted,
            stop=self.stop,
        )
