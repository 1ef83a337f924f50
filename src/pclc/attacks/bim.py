"""The basic iterative method: projected gradient descent from the example itself."""

from dataclasses import dataclass

from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.objectives import directed
from pclc.attacks.pgd import pgd
from pclc.attacks.registry import register_attack
from pclc.attacks.types import Norm
from pclc.attacks.validate import check_ball, check_count, check_number, warn_if_unreachable
from pclc.attacks.victim import Victim


@register_attack("bim")
@dataclass(frozen=True, repr=False)
class BIM(Attack):
    r"""The basic iterative method (Kurakin et al., 2016, arXiv 1607.02533).

    $$x_0 = x, \qquad x_{t+1} = \Pi_{\varepsilon}\big(x_t + \alpha\, s(\nabla_x L(x_t, y))\big):$$

    :class:`PGD` without a random start, and the same for any seed.

    Args:
        eps: radius of the ball.
        alpha: size of a step.
        steps: number of steps.
        norm: "Linf" or "L2".
        objective: what is maximised, a registered name with an optional logit scale.
        targeted: `y` is the class to reach.
        stop: "success" or "never", see `Attack`.

    Cost: `steps` forward and backward passes, two more forward passes.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> BIM(eps=0.375, alpha=0.125, steps=3)(model, torch.tensor([[0.75, 0.25]]), torch.tensor([0]))
        tensor([[0.3750, 0.6250]])
    """

    eps: float
    alpha: float
    steps: int
    norm: Norm = "Linf"
    objective: str = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_number("alpha", self.alpha, positive=True)
        check_count("steps", self.steps)
        directed(self.objective, self.targeted)
        warn_if_unreachable(self.eps, self.alpha, self.steps, "alpha")

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return pgd(victim, x, y, seed, index, **vars(self), random_start=False)
