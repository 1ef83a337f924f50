"""Carlini and Wagner's attack: the smallest perturbation in L2 that fools."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.balls import row_norms
from pclc.attacks.objectives import directed
from pclc.attacks.registry import register_attack
from pclc.attacks.rules import adam
from pclc.attacks.validate import check_count, check_number
from pclc.attacks.victim import Victim, is_success

_INSIDE = 1 - 1e-6  # keeps atanh finite at pixels of 0 and 1


def to_tanh_space(x: Tensor) -> Tensor:
    """The w with x = (tanh w + 1) / 2, up to 5e-7 at pixels of 0 and 1."""
    return ((2 * x - 1) * _INSIDE).atanh()


def from_tanh_space(w: Tensor) -> Tensor:
    """(tanh w + 1) / 2, which is in [0, 1] for any w."""
    return (w.tanh() + 1) / 2


def carlini_wagner(
    victim: Victim,
    x: Tensor,
    y: Tensor,
    *,
    confidence: float,
    lr: float,
    steps: int,
    search_steps: int,
    initial_const: float,
    targeted: bool,
) -> Tensor:
    """The work of :class:`CarliniWagner`, without its checks: x is in [0, 1], y in [0, K)."""
    margin, descent = directed("margin", targeted), adam(-lr)
    start = to_tanh_space(x)
    centre = from_tanh_space(start)  # not x: at the start the distance has no gradient
    best, best_norm = x.clone(), x.new_full((len(x),), torch.inf)
    const, low, high = (x.new_full((len(x),), value) for value in (initial_const, 0.0, torch.inf))
    for _ in range(search_steps):
        w, moments = start, x.new_zeros(len(x), 2, *x.shape[1:])
        found = torch.zeros_like(y, dtype=torch.bool)
        for t in range(steps):
            x_adv = from_tanh_space(w)
            slope = victim.gradient(margin, x_adv, y)
            enough = slope.value >= confidence
            pull = torch.where(enough, 0, const).reshape(-1, *[1] * (x.dim() - 1))
            # |x' - x|^2 + const * max(0, confidence - margin), by the chain rule through x' = (tanh w + 1) / 2
            grad = (2 * (x_adv - centre) - pull * slope.grad) * 2 * x_adv * (1 - x_adv)
            adversarial = is_success(slope.logits, y, targeted) & enough
            if t >= steps // 2:  # Adam's first steps are of the size lr whatever c is, and may overshoot the boundary
                found |= adversarial
            norm = row_norms(x_adv - x).flatten()
            closer = (adversarial & (norm < best_norm)).nonzero().squeeze(1)
            if len(closer):
                confirmed = closer[victim.confirm(slope.logits[closer], x_adv[closer], y[closer], targeted)]
                best[confirmed], best_norm[confirmed] = x_adv[confirmed], norm[confirmed]
            update, moments = descent(grad, moments, t)
            w = w + update
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

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return carlini_wagner(
            victim,
            x,
            y,
            confidence=self.confidence,
            lr=self.lr,
            steps=self.steps,
            search_steps=self.search_steps,
            initial_const=self.initial_const,
            targeted=self.targeted,
        )
