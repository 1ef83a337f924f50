"""Auto-PGD towards the most probable false classes, one after the other."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pclc.attacks.apgd import auto_pgd, edge_point
from pclc.attacks.attack import Attack
from pclc.attacks.objectives import dlr_towards
from pclc.attacks.registry import register_attack
from pclc.attacks.restarts import Ended, best_attempt
from pclc.attacks.types import Norm
from pclc.attacks.validate import check_ball, check_count, check_share, check_untargeted
from pclc.attacks.victim import Victim


def likely_classes(logits: Tensor, y: Tensor, targets: int) -> Tensor:
    """(N, T) classes other than y, those of the largest logits first; T is `targets`, or K - 1 where that is less.

    Example:
        >>> likely_classes(torch.tensor([[3.0, 1.0, 2.0]]), torch.tensor([0]), targets=9)
        tensor([[2, 1]])
    """
    others = logits.scatter(1, y[:, None], -torch.inf)
    return others.topk(min(targets, logits.shape[1] - 1), dim=1).indices


@register_attack("apgd_t")
@dataclass(frozen=True, repr=False)
class APGDTargeted(Attack):
    r"""Auto-PGD on the targeted DLR loss, APGD-T (Croce and Hein, ICML 2020, arXiv 2003.01690).

    :class:`APGD` on $(z_t - z_y) / (z_{\pi_1} - \tfrac12 (z_{\pi_3} + z_{\pi_4}))$, z sorted downwards by $\pi$,
    towards each of the classes t of the largest logits on the clean image, other than y, one after the other. It is an
    untargeted attack: an example is fooled when any class but y is predicted. The loss needs K >= 4. There is no L1.

    Args:
        eps: radius of the ball.
        steps: number of steps towards each class.
        targets: how many classes; all K - 1 others where that is less.
        norm: "Linf" or "L2".
        restarts: attempts at each class, each from another random point.
        rho: share of rising steps at which the step size is still halved.
        targeted: has to be False; `APGD(targeted=True, objective="dlr-targeted")` reaches a class that is given.
        stop: "success" returns the first point that fools; "never" spends the whole budget and returns the point of the
            largest objective among those that fool. Where none does, both return the point of the largest objective.

    Cost: with T classes `T * restarts * (steps + 1) + 1` forward and `T * restarts * steps` backward passes, two more
    forward passes.

    Example:
        >>> attack = APGDTargeted(eps=0.2, steps=5)
        >>> x_adv = attack(torch.nn.Linear(4, 5), torch.full((2, 4), 0.5), torch.tensor([0, 1]))
        >>> bool(((x_adv - 0.5).abs() <= 0.2 + 1e-6).all())
        True
    """

    eps: float
    steps: int = 100
    targets: int = 9
    norm: Norm = "Linf"
    restarts: int = 1
    rho: float = 0.75

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_count("steps", self.steps)
        check_count("targets", self.targets)
        check_count("restarts", self.restarts)
        check_share("rho", self.rho)
        check_untargeted(self.targeted, "APGDTargeted")

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        classes = likely_classes(victim.logits(x), y, self.targets)
        settings = {name: getattr(self, name) for name in ("eps", "steps", "norm", "rho", "targeted", "stop")}

        def attempt(number: int, rows: Tensor) -> Ended:
            start = edge_point(x[rows], self.eps, self.norm, seed, index[rows], draw=number)
            goals = y[rows], classes[rows, number // self.restarts]
            return auto_pgd(victim, dlr_towards, x[rows], start, *goals, **settings)

        return best_attempt(classes.shape[1] * self.restarts, attempt, x, self.stop)
