"""Random noise: what an attack has to beat."""

from dataclasses import dataclass

from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.balls import random_point
from pclc.attacks.objectives import directed
from pclc.attacks.registry import register_attack
from pclc.attacks.restarts import best_of
from pclc.attacks.types import Norm
from pclc.attacks.validate import check_ball, check_count
from pclc.attacks.victim import Victim


@register_attack("noise")
@dataclass(frozen=True, repr=False)
class Noise(Attack):
    r"""The best of several random points: $x' = \Pi_{[0, 1]}(x + u)$ with u at random, $\|u\| \leq \varepsilon$.

    An example is fooled when any draw fools. A model that falls to noise needs no attack, and an attack that is weaker
    than noise is a bad one (Carlini et al., 2019, arXiv 1902.06705).

    Args:
        eps: radius of the ball.
        draws: number of points (Linf: uniform in the ball; L2: uniform direction and radius). Kept is the first that
            fools; where none does, and with stop="never", the one of the largest margin (those that fool first).
        norm: "Linf" or "L2".
        targeted: `y` is the class to reach.
        stop: "success" or "never", see `Attack`.

    Cost: `draws` forward passes, two more; no backward pass.

    Example:
        >>> import torch
        >>> x = torch.full((1, 3), 0.5)
        >>> x_adv = Noise(eps=0.1, draws=5)(torch.nn.Linear(3, 2), x, torch.tensor([0]))
        >>> bool(((x_adv - x).abs() <= 0.1 + 1e-6).all())
        True
    """

    eps: float
    draws: int = 10
    norm: Norm = "Linf"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_count("draws", self.draws)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        def attempt(number: int, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
            return random_point(x, self.eps, self.norm, seed, index, draw=number)

        goal = directed("margin", self.targeted)
        return best_of(self.draws, attempt, victim, x, y, index, objective=goal, targeted=self.targeted, stop=self.stop)
