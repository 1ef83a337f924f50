"""The fast gradient sign method: one step of the length of eps."""

from dataclasses import dataclass

from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.objectives import directed
from pclc.attacks.pgd import pgd
from pclc.attacks.registry import register_attack
from pclc.attacks.types import Norm
from pclc.attacks.validate import check_ball
from pclc.attacks.victim import Victim


@register_attack("fgsm")
@dataclass(frozen=True, repr=False)
class FGSM(Attack):
    r"""The fast gradient sign method (Goodfellow et al., ICLR 2015, arXiv 1412.6572).

    $$x' = \Pi_{\varepsilon}\big(x + \varepsilon\, s(\nabla_x L(x, y))\big),$$

    with s and the projection of :class:`PGD`: PGD with one step of alpha = eps from x.

    Args:
        eps: radius of the ball, and size of the step.
        norm: "Linf" or "L2".
        objective: what is maximised, a registered name with an optional logit scale.
        targeted: `y` is the class to reach.
        stop: "success" or "never", see `Attack`: they differ only in examples that are fooled before the attack.

    Cost: one forward and one backward pass, two more forward passes.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, -1.0], [-1.0, 1.0]])
        >>> FGSM(eps=0.25)(model, torch.tensor([[0.75, 0.25]]), torch.tensor([0]))
        tensor([[0.5000, 0.5000]])
    """

    eps: float
    norm: Norm = "Linf"
    objective: str = "ce"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        directed(self.objective, self.targeted)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return pgd(victim, x, y, seed, index, **vars(self), alpha=self.eps, steps=1, random_start=False)
