"""The attack on the margin of probabilities, which is what PC-LC trains to be large."""

from dataclasses import dataclass

from torch import Tensor
from torch.nn.functional import logsigmoid

from pclc.attacks.attack import Attack
from pclc.attacks.md import Terms, check_switch, two_stages
from pclc.attacks.objectives import log_odds
from pclc.attacks.registry import register_attack
from pclc.attacks.types import Norm
from pclc.attacks.validate import check_ball, check_count, check_number
from pclc.attacks.victim import Victim


def probability_terms(logit_scale: float) -> Terms:
    r"""Functions whose gradients have the directions of $-f_y$, $f_j$ and $f_j - f_y$, j the strongest other class.

    $\nabla (f_j - f_y)$ is a sum of the gradients of both log-odds, with the weights $f_k (1 - f_k)$; only their ratio
    is needed, and found from logarithms. So nothing here vanishes.
    """

    def odds(logits: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = logits * logit_scale
        j = logits.detach().scatter(1, y[:, None], -float("inf")).argmax(1)
        return log_odds(logits, y), log_odds(logits, j)

    def whole(logits: Tensor, y: Tensor) -> Tensor:
        true, other = odds(logits, y)
        share = (_log_weight(other) - _log_weight(true)).sigmoid().detach()
        return share * other - (1 - share) * true

    return Terms(lambda logits, y: -odds(logits, y)[0], lambda logits, y: odds(logits, y)[1], whole)


def _log_weight(odds: Tensor) -> Tensor:
    """log f (1 - f) from the log-odds of f."""
    return logsigmoid(odds) + logsigmoid(-odds)


@register_attack("probability_margin")
@dataclass(frozen=True, repr=False)
class ProbabilityMargin(Attack):
    r"""The probability margin attack, PMA (Xie et al., arXiv 2411.15210): the adaptive attack on PC-LC.

    $$\max_{\|x' - x\| \leq \varepsilon}\ \max_{k \neq y} f_k(x') - f_y(x'), \qquad f = \text{softmax}(z),$$

    the inverse of the PC loss, in the two stages of :class:`MD`: $-f_y$ or $\max_{k \neq y} f_k$ alone, then both. The
    switch is after half of the steps, as in the authors' code.

    The gradient of a probability vanishes where the softmax is saturated; in float32 that of `"probability-margin"` is
    exactly zero where $z_y$ leads by about 100, and loses the part of $z_y$ from a lead of about 17 on. Steps here see
    only the direction of a gradient, so it is computed from log-odds, $\nabla f_k = f_k (1 - f_k)\, \nabla \log
    \frac{f_k}{1 - f_k}$, which has the same direction and does not vanish. What is left in a saturated softmax is the
    direction itself: with logits far apart it sees the strongest other class only. `logit_scale` below 1 softens it.

    Args:
        eps: radius of the ball.
        steps: of one attempt.
        switch: share of the steps after which the whole margin is followed.
        norm: "Linf" or "L2".
        restarts: attempts, $-f_y$ first in the first, $\max_{k \neq y} f_k$ first in the second, and so on: 2 is what
            the authors call one random start.
        logit_scale: factor of the logits before the softmax.
        targeted: `y` is the class to reach; every objective changes its sign.
        stop: "success" or "never", see `Attack`.

    Cost: `restarts * steps` forward and backward passes, one forward pass a restart where there are several, two more.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = 1000 * torch.tensor([[1.0, -1.0], [-1.0, 1.0]])  # f is (1, 0) in float32
        >>> attack = ProbabilityMargin(eps=0.3, steps=10)
        >>> attack.run(model, torch.tensor([[0.75, 0.25]]), torch.tensor([0])).success
        tensor([True])
    """

    eps: float
    steps: int = 100
    switch: float = 0.5
    norm: Norm = "Linf"
    restarts: int = 2
    logit_scale: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_count("steps", self.steps)
        check_switch(self.switch)
        check_count("restarts", self.restarts)
        check_number("logit_scale", self.logit_scale, positive=True)

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        settings = {name: value for name, value in vars(self).items() if name != "logit_scale"}
        return two_stages(victim, x, y, seed, index, terms=probability_terms(self.logit_scale), **settings)
