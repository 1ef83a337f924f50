"""The losses as functions, with the arguments and conventions of `torch.nn.functional.cross_entropy`."""

from typing import Literal

from torch import Tensor

from pclc.losses.complement import complement_entropy_rows
from pclc.losses.inputs import as_rows, check_alpha, check_inputs, check_pc_settings, reduce_rows
from pclc.losses.pc_op import pc_rows
from pclc.losses.pc_rows import Terms

__all__ = ["complement_entropy", "guided_complement_entropy", "pc_loss"]

Reduction = Literal["none", "mean", "sum"]
Constraint = Literal["hard", "soft"]


def pc_loss(
    logits: Tensor,
    target: Tensor,
    *,
    margin: float = 0.995,
    logit_weight: float = 0.05,
    constraint: Constraint = "hard",
    average_classes: bool = False,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""The Probabilistically Compact loss with Logit Constraints (Li et al., AAAI 2021, equations 6 and 16).

    For logits $a$, softmax $f$ and true class $y$ a row costs

    $$\sum_{k \neq y} \max(0, f_k + \xi - f_y) + \lambda \max(0, a_y - a_j),
    \qquad j = \operatorname{argmax}_{k \neq y} a_k.$$

    Takes the logits and class indices that `torch.nn.functional.cross_entropy` takes, with its conventions for
    `weight`, `ignore_index`, `reduction` and empty batches. Half precision is computed and returned in fp32.

    A false class whose logit is -inf is left out; a row without any false class left costs 0. The loss has kinks: at
    $f_k + \xi = f_y$ rounding decides which one-sided derivative is returned; at $a_y = a_j$ the constraint has
    derivative 0; among false classes with equal logits the first takes the constraint's gradient.

    Args:
        logits: (K,), (N, K) or (N, K, d1, ...), with K >= 2.
        target: class indices, of the shape of the logits without their class dimension.
        margin: $\xi$ in (0, 1], the required gap in probability.
        logit_weight: $\lambda \geq 0$, the weight of the logit constraint; 0 leaves PC alone.
        constraint: "hard", as printed; "soft", as in the authors' code:
            $\lambda \sum_{k \neq y} w_k \max(0, a_y - a_k)$ with $w$ the softmax over the false logits.
        average_classes: divide PC by the number of false classes, as the authors' code does.
        weight: a weight for each class.
        ignore_index: rows with this label are ignored.
        reduction: "none", "mean" or "sum".

    Example:
        >>> import torch
        >>> logits = torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 1.0]])
        >>> pc_loss(logits, torch.tensor([0, 1]))
        tensor(0.6438)
        >>> pc_loss(logits, torch.tensor([0, 1]), logit_weight=0, reduction="none")
        tensor([0.6290, 0.4586])
    """
    check_pc_settings(margin, logit_weight, constraint)
    check_inputs(logits, target, weight, reduction)
    mean = reduction == "mean" and weight is None  # the usual case, fused
    terms = Terms(margin, logit_weight, constraint == "soft", average_classes, ignore_index, mean)
    rows, labels = as_rows(logits, target)
    loss = pc_rows(rows, labels, terms)
    return loss if mean else reduce_rows(loss, labels, target.shape, weight, ignore_index, reduction)


def guided_complement_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    alpha: float = 1 / 3,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Guided complement entropy (Chen et al., ICCV 2019): flat probabilities over the false classes.

    $$\frac{f_y^\alpha}{\log(K - 1)} \sum_{k \neq y} q_k \log q_k, \qquad q_k = \frac{f_k}{1 - f_y}.$$

    It lies in [-1, 0] and needs K >= 3. Inputs and conventions are those of :func:`pc_loss`; false classes at -inf are
    left out, also of K - 1, and a row with fewer than two others costs 0.

    Example:
        >>> import torch
        >>> guided_complement_entropy(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(-0.9233)
    """
    check_alpha(alpha)
    check_inputs(logits, target, weight, reduction, fewest_classes=3)
    rows, labels = as_rows(logits, target)
    loss = complement_entropy_rows(rows, labels, alpha, ignore_index)
    return reduce_rows(loss, labels, target.shape, weight, ignore_index, reduction)


def complement_entropy(
    logits: Tensor,
    target: Tensor,
    *,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> Tensor:
    r"""Complement entropy, the second objective of complement objective training (COT; Chen et al., ICLR 2019).

    $$\frac{1}{\log(K - 1)} \sum_{k \neq y} q_k \log q_k, \qquad q_k = \frac{f_k}{1 - f_y}:$$

    the guided form with alpha = 0. It ignores the true class, so it is alternated with cross-entropy.

    Example:
        >>> import torch
        >>> complement_entropy(torch.tensor([[2.0, 0.0, 0.0]]), torch.tensor([0]))
        tensor(-1.)
    """
    return guided_complement_entropy(
        logits, target, alpha=0, weight=weight, ignore_index=ignore_index, reduction=reduction
    )
