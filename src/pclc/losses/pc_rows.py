r"""The PC-LC loss of one row, as the few numbers that forward keeps for backward.

For logits $a$, softmax $f$, true class $y$ and margin $\xi$ a false class $k$ violates the margin when
$f_k + \xi > f_y$. With $c$ violating classes of total probability $M$,

$$PC = c\,(\xi - f_y) + M, \qquad
\partial PC/\partial a_k = f_k\,([k\ \text{violates}] - M + c f_y), \qquad
\partial PC/\partial a_y = -f_y\,(c\,(1 - f_y) + M).$$

In the logits the condition reads $a_k > \tau$ with $\tau = \log\sum\exp a + \log(f_y - \xi)$, and $\tau = -\infty$
while $f_y < \xi$: then every false class violates, $M = 1 - f_y$, and one pass over the row is enough. With $z$, the
log-sum-exp over the *false* logits, $f_y$ and $1 - f_y$ are the logistic function of $\pm(a_y - z)$, which does not
cancel. Everything of the logits' scale is kept relative to the largest false logit $a_j$: at $a = 10^4$ a float32
cannot hold $\log\sum\exp a$ to more than three decimals.

The hard constraint adds $\lambda\max(0, a_y - a_j)$ for the largest false logit $a_j$; the soft one adds
$\lambda\sum_{k\neq y} w_k\max(0, a_y - a_k)$ with $w$ the softmax over the false classes.
"""

from typing import NamedTuple

import torch
from torch import Tensor


class Terms(NamedTuple):
    """The settings of the loss."""

    margin: float
    logit_weight: float
    soft_constraint: bool
    average_classes: bool
    ignore_index: int
    mean: bool  # one number, the mean over the rows that count, instead of one per row

    @property
    def soft(self) -> bool:
        """Whether there is a soft constraint."""
        return self.soft_constraint and self.logit_weight != 0

    @property
    def hard(self) -> bool:
        """Whether there is a hard constraint."""
        return not self.soft_constraint and self.logit_weight != 0


class Rows(NamedTuple):
    """Per-row numbers that backward needs; a row that is ignored, or has no false class, has log_norm = inf."""

    top: Tensor  # the largest false logit a_j, to which the logits and the next two are relative
    log_norm: Tensor  # log-sum-exp of all logits, minus the logarithm of the row's weight (1 or 1 / (K - 1)) of PC
    tau: Tensor  # a false class violates the margin where its logit exceeds this
    shift: Tensor  # M - c f_y
    true_grad: Tensor  # the whole derivative with respect to the true class
    hard_class: Tensor  # the false class whose logit the hard constraint raises, -1 where it is inactive
    false_lse: Tensor  # soft constraint only: log-sum-exp over the false logits, relative to top
    mean_gap: Tensor  # soft constraint only: its value before the weight
    share: Tensor  # one number: what a row's loss is multiplied by in the result, 1 / rows for the mean, else 1

    @staticmethod
    def empty(like: Tensor, terms: Terms) -> "Rows":
        """Unwritten rows of the shape of `like`; parts that `terms` does not need hold nothing."""
        nothing = like.new_empty(0)
        hard_class = torch.empty(like.shape if terms.hard else 0, dtype=torch.int32, device=like.device)
        soft = (torch.empty_like(like), torch.empty_like(like)) if terms.soft else (nothing, nothing.clone())
        top, log_norm, tau, shift, true_grad = (torch.empty_like(like) for _ in range(5))
        return Rows(top, log_norm, tau, shift, true_grad, hard_class, *soft, like.new_empty(1))
