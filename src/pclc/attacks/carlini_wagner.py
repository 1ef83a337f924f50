"""Carlini and Wagner's attack: the smallest perturbation in L2 that fools."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.balls import per_row, row_norms
from pclc.attacks.objectives import directed
from pclc.attacks.registry import register_attack
from pclc.attacks.rules import adam
from pclc.attacks.types import keep
from pclc.attacks.validate import check_choice, check_count, check_flag, check_number
from pclc.attacks.victim import Victim, is_success

SpaceName = Literal["tanh", "pixel"]

_INSIDE = 1 - 1e-6  # keeps atanh finite at pixels of 0 and 1
_STALLED = 0.9999  # of the loss a tenth of the steps ago, as in Carlini and Wagner's code


def to_tanh_space(x: Tensor) -> Tensor:
    """The w with x = (tanh w + 1) / 2, up to 5e-7 at pixels of 0 and 1."""
    return ((2 * x - 1) * _INSIDE).atanh()


def from_tanh_space(w: Tensor) -> Tensor:
    """(tanh w + 1) / 2, which is in [0, 1] for any w."""
    return (w.tanh() + 1) / 2


class Space(NamedTuple):
    """Where Adam takes its steps."""

    enter: Callable[[Tensor], Tensor]  # from an image
    leave: Callable[[Tensor], Tensor]  # to an image
    slope: Callable[[Tensor], Tensor]  # of leaving, at an image
    move: Callable[[Tensor, Tensor], Tensor]


_SPACES: dict[str, Space] = {
    "tanh": Space(to_tanh_space, from_tanh_space, lambda x: 2 * x * (1 - x), torch.add),
    "pixel": Space(lambda x: x, lambda w: w, torch.ones_like, lambda w, update: (w + update).clamp(0, 1)),
}


class Descent(NamedTuple):
    """Where Adam stands for one c; every tensor has one row per example."""

    row: Tensor  # place among all examples
    x: Tensor
    y: Tensor
    const: Tensor
    centre: Tensor  # x as the space has it: at the start the distance has no gradient
    w: Tensor
    moments: Tensor
    loss: Tensor  # when it was last looked at


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
    space: SpaceName,
    nearest: bool,
    abort_early: bool,
    targeted: bool,
) -> Tensor:
    """The work of :class:`CarliniWagner`, without its checks: x is in [0, 1], y in [0, K)."""
    margin, descend = directed("margin", targeted), adam(-lr)
    enter, leave, slope_of_leaving, move = _SPACES[space]
    best, best_norm = x.clone(), x.new_full((len(x),), torch.inf)
    # Where the nearest is not asked for it does not matter which c fools, and the largest does so in the fewest steps.
    first = initial_const if nearest else initial_const * 10 ** (search_steps - 1)
    const, low, high = (x.new_full((len(x),), value) for value in (first, 0.0, torch.inf))
    everything = torch.arange(len(x), device=x.device)
    for _ in range(search_steps):
        todo = everything if nearest else everything[best_norm.isinf()]
        if not len(todo):
            break
        fooled_at, steps_taken = torch.full_like(y, -1), torch.full_like(y, steps)
        moments = x.new_zeros(len(todo), 2, *x.shape[1:])
        w = enter(x[todo])
        now = Descent(todo, x[todo], y[todo], const[todo], leave(w), w, moments, x.new_full((len(todo),), torch.inf))
        for t in range(steps):
            x_adv = leave(now.w)
            slope = victim.gradient(margin, x_adv, now.y)
            enough = slope.value >= confidence
            pull = per_row(torch.where(enough, 0, now.const), x)
            # |x' - x|^2 + const * max(0, confidence - margin), by the chain rule through x' = leave(w)
            grad = (2 * (x_adv - now.centre) - pull * slope.grad) * slope_of_leaving(x_adv)
            update, moments = descend(grad, now.moments, t)
            now = now._replace(w=move(now.w, update), moments=moments)
            adversarial = is_success(slope.logits, now.y, targeted) & enough
            fooled_at[now.row] = torch.where(adversarial, t, fooled_at[now.row])
            norm = row_norms(x_adv - now.x).flatten()
            closer = (adversarial & (norm < best_norm[now.row])).nonzero().squeeze(1)
            if len(closer):
                closer = closer[victim.confirm(slope.logits[closer], x_adv[closer], now.y[closer], targeted)]
                best[now.row[closer]], best_norm[now.row[closer]] = x_adv[closer], norm[closer]
            looks = abort_early and t % max(1, steps // 10) == 0
            if not looks and (nearest or not len(closer)):
                continue
            goes_on = best_norm[now.row].isinf() | nearest
            if looks:
                loss = row_norms(x_adv - now.centre).flatten().square() + now.const * (confidence - slope.value).relu()
                falls = loss < _STALLED * now.loss
                steps_taken[now.row] = torch.where(falls, steps, t)
                now, goes_on = now._replace(loss=loss), goes_on & falls
            now = keep(now, goes_on)
            if not len(now.row):
                break
        if not nearest:
            const = const / 10
            continue
        # Adam's first steps are of the size lr whatever c is, and may overshoot the boundary.
        found = fooled_at >= steps_taken // 2
        low, high = torch.where(found, low, const), torch.where(found, const, high)
        const = torch.where(high.isinf(), 10 * const, (low + high) / 2)
    return best


@register_attack("cw")
@dataclass(frozen=True, repr=False)
class CarliniWagner(Attack):
    r"""Carlini and Wagner's L2 attack (IEEE S&P 2017, arXiv 1608.04644).

    $$\min_w \|x' - x\|_2^2 + c \max\big(0,\ \kappa + z_y(x') - \max_{k \neq y} z_k(x')\big),
    \qquad x' = (\tanh w + 1) / 2,$$

    by Adam, with the smallest c that fools by binary search for each example (times 10 until one does; but see
    `nearest`). A c fools when the second half of its steps does: the first ones may overshoot a near boundary whatever
    c is. Only differences of logits enter, so that a constant added to all of them changes nothing. No norm is bounded:
    the nearest example that fools is returned, and x itself where none was found.

    Args:
        confidence: $\kappa \geq 0$, by which the wrong logit has to lead.
        lr: Adam's learning rate, in the space in which it steps.
        steps: steps of Adam for each c.
        search_steps: values of c that are tried.
        initial_const: the smallest c of those that grow tenfold, and the first unless `nearest` is False.
        space: "tanh", as above, or "pixel": x' itself, clamped to the box after each step. A step of `lr` moves w, and
            at black and white pixels w has far to go: with a small `lr` and few steps they hardly change.
        nearest: search for the nearest example that fools. With False an example is left alone once one is found, and
            the values of c are tried from the largest down: the same examples are fooled, and where many are, with far
            fewer passes.
        abort_early: end an example's descent for one c when its loss, checked every `max(1, steps // 10)` steps, is not
            below 0.9999 times its value at the last check. Carlini and Wagner's code compares the sum over a batch;
            here nothing depends on what else is in the batch. What it fools is fooled without it too. The converse need
            not hold, since a loss may fall again later, and the nearest example found is often farther away.
        targeted: `y` is the class to reach.
        stop: "success" leaves examples alone that are fooled before the attack; for the others `nearest` decides.

    Cost: `search_steps * steps` forward and backward passes, two more forward passes; with `nearest=False` or
    `abort_early=True` that is the most. The latter saves most where many examples are never fooled and their loss
    stands still.

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
    space: SpaceName = "tanh"
    nearest: bool = True
    abort_early: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("confidence", self.confidence)
        check_number("lr", self.lr, positive=True)
        check_count("steps", self.steps)
        check_count("search_steps", self.search_steps)
        check_number("initial_const", self.initial_const, positive=True)
        check_choice("space", self.space, get_args(SpaceName))
        check_flag("nearest", self.nearest)
        check_flag("abort_early", self.abort_early)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        settings = {name: value for name, value in vars(self).items() if name != "stop"}
        return carlini_wagner(victim, x, y, **settings)
