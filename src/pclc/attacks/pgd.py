"""Projected gradient descent, on which FGSM, BIM and MIM are variations."""

from dataclasses import dataclass

from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.balls import random_point
from pclc.attacks.loop import Rows, ascend, victim_gradient
from pclc.attacks.objectives import directed
from pclc.attacks.registry import register_attack
from pclc.attacks.restarts import best_of
from pclc.attacks.rules import steepest
from pclc.attacks.types import Norm, Stop
from pclc.attacks.validate import check_ball, check_count, check_flag, check_number, warn_if_unreachable
from pclc.attacks.victim import Victim


def pgd(
    victim: Victim,
    x: Tensor,
    y: Tensor,
    seed: int,
    index: Tensor,
    *,
    eps: float,
    alpha: float,
    steps: int,
    norm: Norm,
    random_start: bool,
    restarts: int = 1,
    objective: str,
    targeted: bool,
    stop: Stop,
) -> Tensor:
    """The work of :class:`PGD`, without its checks: x is in [0, 1], y in [0, K)."""
    goal = directed(objective, targeted)
    gradient, rule = victim_gradient(victim, goal), steepest(alpha, norm)

    def attempt(number: int, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
        start = random_point(x, eps, norm, seed, index, draw=number) if random_start else x
        rows = Rows(x, y, index, start, x.new_empty(len(x), 0))
        return ascend(victim, gradient, rule, rows, eps=eps, norm=norm, steps=steps, targeted=targeted, stop=stop)

    return best_of(restarts, attempt, victim, x, y, index, objective=goal, targeted=targeted, stop=stop)


@register_attack("pgd")
@dataclass(frozen=True, repr=False)
class PGD(Attack):
    r"""Projected gradient descent (Madry et al., ICLR 2018, arXiv 1706.06083).

    $$x_{t+1} = \Pi_{\varepsilon}\big(x_t + \alpha\, s(\nabla_x L(x_t, y))\big), \qquad
    s(g) = \operatorname{sign}(g)\ \text{(Linf)},\quad g / \|g\|_2\ \text{(L2)},$$

    from a random point of the ball; $\Pi_\varepsilon$ projects onto the ball around x and the box [0, 1].

    Args:
        eps: radius of the ball.
        alpha: size of a step.
        steps: number of steps.
        norm: "Linf" or "L2".
        random_start: start at a random point (Linf: uniform in the ball; L2: uniform direction and radius); otherwise
            at x.
        restarts: attempts, each from another random point. An attempt that fools is kept; where none does, and with
            stop="never", the last iterate of the largest objective (those that fool first).
        objective: what is maximised, a registered name with an optional logit scale: "ce", "margin", "ce*0.01", ...
        targeted: `y` is the class to reach.
        stop: "success" or "never", see `Attack`.

    Cost: `restarts * steps` forward and backward passes, one forward pass a restart where there are several, two more.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(4, 3)
        >>> x, y = torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])
        >>> attack = PGD(eps=0.3, alpha=0.01, steps=40)
        >>> x_adv = attack(model, x, y, seed=0)
        >>> bool(((x_adv - x).abs() <= 0.3 + 1e-6).all())
        True
        >>> print(attack)
        pgd(eps=0.3, alpha=0.01, steps=40)
    """

    eps: float
    alpha: float
    steps: int
    norm: Norm = "Linf"
    random_start: bool = True
    restarts: int = 1
    objective: str = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_number("alpha", self.alpha, positive=True)
        check_count("steps", self.steps)
        check_flag("random_start", self.random_start)
        check_count("restarts", self.restarts)
        directed(self.objective, self.targeted)
        if self.restarts > 1 and not self.random_start:
            raise ValueError(
                f"Expected `restarts` to be 1 without random_start, but got {self.restarts} equal attempts."
            )
        warn_if_unreachable(self.eps, self.alpha, self.steps, "alpha")

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return pgd(victim, x, y, seed, index, **vars(self))
