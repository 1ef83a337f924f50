"""Carlini and Wagner's attack: the smallest perturbation in L2 that fools."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.balls import row_norms
from pclc.attacks.cost import Cost
from pclc.attacks.decide import fooled, is_success
from pclc.attacks.gradients import is_zero
from pclc.attacks.objectives import directed
from pclc.attacks.registry import register_attack
from pclc.attacks.rules import adam
from pclc.attacks.types import Model
from pclc.attacks.validate import check_count, check_number

_INSIDE = 1 - 1e-6  # keeps atanh finite at pixels of 0 and 1


class Point(NamedTuple):
    """Where one step of Adam leads, w and moments, and what was seen where it began."""

    w: Tensor
    moments: Tensor
    x_adv: Tensor
    logits: Tensor
    short: Tensor  # (N,) what the margin lacks of the confidence asked for, 0 where nothing
    zero: Tensor  # (N,) the margin is short, and no gradient tells where to go


def to_tanh_space(x: Tensor) -> Tensor:
    """The w with x = (tanh w + 1) / 2, up to 5e-7 at pixels of 0 and 1."""
    return ((2 * x - 1) * _INSIDE).atanh()


def from_tanh_space(w: Tensor) -> Tensor:
    """(tanh w + 1) / 2, which is in [0, 1] for any w."""
    return (w.tanh() + 1) / 2


def make_step(model: Model, confidence: float, lr: float, targeted: bool) -> Callable[..., Point]:
    """One step of Adam on |x' - x|^2 + const * max(0, confidence - margin), as a pure function of tensors."""
    margin, rule = directed("margin", targeted), adam(lr)

    def step(centre: Tensor, y: Tensor, const: Tensor, w: Tensor, moments: Tensor, t: int) -> Point:
        with torch.enable_grad():
            leaf = w.detach().requires_grad_()
            x_adv = from_tanh_space(leaf)
            logits = model(x_adv)
            short = (confidence - margin(logits, y)).clamp(min=0)
            loss = (x_adv - centre).square().flatten(1).sum(1) + const * short
            (grad,) = torch.autograd.grad(loss.sum(), leaf)
        update, moments = rule(grad, moments, t)
        return Point(w - update, moments, x_adv.detach(), logits.detach(), short.detach(), is_zero(grad) & (short > 0))

    return step


def carlini_wagner(
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    confidence: float = 0.0,
    lr: float = 0.01,
    steps: int = 1000,
    search_steps: int = 9,
    initial_const: float = 1e-3,
    targeted: bool = False,
    cost: Cost | None = None,
) -> Tensor:
    """The work of :class:`CarliniWagner`, without its checks: `model` is in eval mode, x is in [0, 1], y in [0, K)."""
    cost = cost or Cost()
    step = make_step(model, confidence, lr, targeted)
    start = to_tanh_space(x)
    centre = from_tanh_space(start)  # not x: at the start the distance has no gradient
    best, best_norm = x.clone(), x.new_full((len(x),), torch.inf)
    const, low, high = (x.new_full((len(x),), value) for value in (initial_const, 0.0, torch.inf))
    for _ in range(search_steps):
        w, moments = start, x.new_zeros(len(x), 2, *x.shape[1:])
        found = torch.zeros_like(y, dtype=torch.bool)
        for t in range(steps):
            point = step(centre, y, const, w, moments, t)
            w, moments = point.w, point.moments
            cost.add_gradients(point.zero)
            adversarial = is_success(point.logits, y, targeted) & (point.short == 0)
            if t >= steps // 2:  # Adam's first steps are of the size lr whatever c is, and may overshoot the boundary
                found |= adversarial
            norm = row_norms(point.x_adv - x).flatten()
            closer = (adversarial & (norm < best_norm)).nonzero().squeeze(1)
            if len(closer):
                x_adv = point.x_adv[closer]
                closer_fooled = fooled(model, x_adv, y[closer], point.logits[closer], targeted, cost)
                place = closer[closer_fooled]
                best[place], best_norm[place] = x_adv[closer_fooled], norm[place]
        low, high = torch.where(found, low, const), torch.where(found, const, high)
        const = torch.where(high.isinf(), 10 * const, (low + high) / 2)
    return best


@register_attack("cw")
@dataclass(frozen=True, repr=False)
class CarliniWagner(Attack):
    r"""Carlini and Wagner's L2 attack (IEEE S&P 2017, arXiv 1608.04644).

    $$\min_w \|x' - x\|_2^2 + c \max\big(0,\ \kappa + z_y(x') - \max_{k \neq y} z_k(x')\big),
    \qquad x' = (\tanh w + 1) / 2,$$

    by Adam, with the smallest c that fools by binary search for each example (times 10 until one does). A c fools when
    the second half of its steps does: the first ones may overshoot a near boundary whatever c is. Only
    differences of logits enter, so that a constant added to all of them changes nothing. It bounds no norm: it returns
    the nearest example that fools, and x itself where none was found.

    Args:
        confidence: $\kappa \geq 0$, by which the wrong logit has to lead.
        lr: Adam's learning rate, in the space of w.
        steps: steps of Adam for each c.
        search_steps: values of c that are tried.
        initial_const: the first c.
        targeted: `y` is the class to reach.
        stop: "success" leaves examples alone that are fooled before the attack; others are always searched to the end,
            because the distance is what is asked for.

    Cost: `search_steps * steps` forward and backward passes, two more forward passes.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> x = torch.tensor([[0.75, 0.25]])
        >>> x_adv = CarliniWagner(steps=100)(model, x, torch.tensor([0]))
        >>> print(f"{(x_adv - x).norm():.2f}")  # the boundary is at 0.3536
        0.35
    """

    confidence: float = 0.0
    lr: float = 0.01
    steps: int = 1000
    search_steps: int = 9
    initial_const: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("confidence", self.confidence)
        check_number("lr", self.lr, positive=True)
        check_count("steps", self.steps)
        check_count("search_steps", self.search_steps)
        check_number("initial_const", self.initial_const, positive=True)

    def _perturb(self, model: Model, x: Tensor, y: Tensor, seed: int, index: Tensor, cost: Cost) -> Tensor:
        return carlini_wagner(
            model,
            x,
            y,
            confidence=self.confidence,
            lr=self.lr,
            steps=self.steps,
            search_steps=self.search_steps,
            initial_const=self.initial_const,
            targeted=self.targeted,
            cost=cost,
        )
