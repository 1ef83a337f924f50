"""The momentum iterative method."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.loop import Rows, ascend, victim_gradient
from pclc.attacks.objectives import directed
from pclc.attacks.registry import register_attack
from pclc.attacks.rules import momentum
from pclc.attacks.types import Norm
from pclc.attacks.validate import check_ball, check_count, check_number, warn_if_unreachable
from pclc.attacks.victim import Victim


@register_attack("mim")
@dataclass(frozen=True, repr=False)
class MIM(Attack):
    r"""The momentum iterative method, MI-FGSM (Dong et al., CVPR 2018, arXiv 1710.06081).

    $$g_{t+1} = \mu g_t + \frac{\nabla_x L(x_t, y)}{\|\nabla_x L(x_t, y)\|_1 / d}, \qquad
    x_{t+1} = \Pi_{\varepsilon}\big(x_t + \alpha\, s(g_{t+1})\big), \qquad x_0 = x,$$

    with s and the projection of :class:`PGD`. The gradient of each example is divided by the mean of its d absolute
    values; the paper's sum gives the same direction.

    Args:
        eps: radius of the ball.
        alpha: size of a step.
        steps: number of steps.
        decay: $\mu$, what is kept of the momentum at each step.
        norm: "Linf" or "L2".
        objective: what is maximised, a registered name with an optional logit scale.
        targeted: `y` is the class to reach.
        stop: "success" or "never", see `Attack`.

    Cost: `steps` forward and backward passes, two more forward passes.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> MIM(eps=0.375, alpha=0.125, steps=3)(model, torch.tensor([[0.75, 0.25]]), torch.tensor([0]))
        tensor([[0.3750, 0.6250]])
    """

    eps: float
    alpha: float
    steps: int
    decay: float = 1.0
    norm: Norm = "Linf"
    objective: str = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_number("alpha", self.alpha, positive=True)
        check_count("steps", self.steps)
        check_number("decay", self.decay)
        directed(self.objective, self.targeted)
        warn_if_unreachable(self.eps, self.alpha, self.steps, "alpha")

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return ascend(
            victim,
            victim_gradient(victim, directed(self.objective, self.targeted)),
            momentum(self.alpha, self.norm, self.decay),
            Rows(x, y, index, x, torch.zeros_like(x)),
            eps=self.eps,
            norm=self.norm,
            steps=self.steps,
            targeted=self.targeted,
            stop=self.stop,
        )
