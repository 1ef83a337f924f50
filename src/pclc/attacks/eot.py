"""Attacks on models that are random themselves: every answer is a mean over several draws."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.gradients import is_zero
from pclc.attacks.registry import register_attack
from pclc.attacks.transfer import Transfer
from pclc.attacks.types import Stop
from pclc.attacks.validate import check_count
from pclc.attacks.victim import Slope, Victim, is_success


class MeanVictim(Victim):
    """A victim that answers with the mean over `draws` calls of the model, counted as passes of the one it stands for.

    The gradient is that of the mean objective. Draws are asked one after the other, since a model may draw once for a
    whole batch, and so that memory does not grow with them.
    """

    def __init__(self, victim: Victim, draws: int) -> None:
        super().__init__(victim.model, victim.execution)
        self.cost, self.draws = victim.cost, draws

    def logits(self, x: Tensor) -> Tensor:
        """The mean logits (N, K) in the precision of crafting."""
        return self._mean(lambda: (super(MeanVictim, self).logits(x),))[0]

    def exact_logits(self, x: Tensor) -> Tensor:
        """The mean logits (N, K), without TF32 and without autocast."""
        return self._mean(lambda: (super(MeanVictim, self).exact_logits(x),))[0]

    def gradient(self, objective: Callable[..., Tensor], x: Tensor, *rows: Tensor) -> Slope:
        """The means of logits, value and gradient of `objective(logits, *rows)` at x."""
        gradients, zeros = self.cost.gradients, self.cost.zeros
        slope = Slope(*self._mean(lambda: super(MeanVictim, self).gradient(objective, x, *rows)))
        # A gradient that is zero in one draw moves nothing only where it is zero in all.
        self.cost.gradients, self.cost.zeros = gradients, zeros
        self.cost.add_gradients(is_zero(slope.grad), forwards=0, backwards=0)
        return slope

    def _mean(self, answer: Callable[[], tuple[Tensor, ...]]) -> list[Tensor]:
        total = list(answer())
        for _ in range(1, self.draws):
            total = [sum_ + part for sum_, part in zip(total, answer(), strict=True)]
        return [sum_ / self.draws for sum_ in total]

    def _without_near_ties(self, logits: Tensor, x: Tensor, y: Tensor, targeted: bool) -> Tensor:
        """A near tie of means is none of the model: nothing is decided again in float64."""
        return is_success(logits, y, targeted)


@register_attack("eot")
@dataclass(frozen=True, repr=False)
class EOT(Attack):
    r"""Expectation over transformation (Athalye et al., ICML 2018, arXiv 1707.07397): for a model that is random.

    An attack whose every logit, value and gradient is the mean over `draws` calls of the model,

    $$\nabla\, \mathbb{E}\, L(z(x), y) \approx \frac{1}{R} \sum_{r=1}^{R} \nabla L(z_r(x), y),$$

    so that it climbs the expected objective and not the luck of one draw. The attack spends its whole budget, so it is
    kept with stop="never": a random model is scored by its expected error, which has no moment of success, and an
    example that is left where it begins to fool is fooled in only half of the draws. The success that `run` returns is
    that of one fresh draw for each example; its mean over examples estimates the expected error without bias.

    The model draws from its own generator, usually torch's: seed that generator to repeat a run.

    Args:
        attack: any attack but `Transfer`; decides whether this one is targeted.
        draws: calls for each answer; double them until the attack gains no more.

    Cost: `draws` times the passes of `attack`, two more forward passes.

    Example:
        >>> import torch
        >>> from pclc.attacks import PGD
        >>> attack = EOT(PGD(eps=0.1, alpha=0.02, steps=10), draws=4)
        >>> print(attack)
        eot(pgd(eps=0.1, alpha=0.02, steps=10, stop="never"), draws=4)
        >>> linear = torch.nn.Linear(4, 3)
        >>> model = lambda x: linear(x + 0.1 * torch.randn_like(x))
        >>> attack(model, torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])).shape
        torch.Size([5, 4])
    """

    attack: Attack
    draws: int = 20
    targeted: bool = field(init=False, default=False)
    # Also examples that one draw gets wrong are attacked.
    stop: Stop = field(init=False, default="never")

    def __post_init__(self) -> None:
        if not isinstance(self.attack, Attack) or isinstance(self.attack, EOT | Transfer):
            raise ValueError(f"Expected `attack` to be an attack such as PGD, but got a {type(self.attack).__name__}.")
        object.__setattr__(self, "attack", replace(self.attack, stop="never"))
        object.__setattr__(self, "targeted", self.attack.targeted)
        super().__post_init__()
        check_count("draws", self.draws)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return self.attack._perturb(MeanVictim(victim, self.draws), x, y, seed, index)

    def __str__(self) -> str:
        return f"{self.name}({self.attack}, draws={self.draws})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.attack!r}, draws={self.draws})"
