"""What every loss here shares with `torch.nn.functional.cross_entropy`: its inputs, and how rows are reduced."""

import torch
from torch import Tensor

_REDUCTIONS = ("none", "mean", "sum")


def check_inputs(
    logits: Tensor, target: Tensor, weight: Tensor | None, reduction: str, fewest_classes: int = 2
) -> None:
    """Refuse what has no meaning for a loss over logits and class indices."""
    if not logits.is_floating_point():
        raise TypeError(f"Expected `logits` to be floating point, but got {logits.dtype}.")
    if logits.dim() == 0:
        raise ValueError("Expected `logits` of shape (K,), (N, K) or (N, K, d1, ...), but got a scalar.")
    if target.is_floating_point():
        raise TypeError(
            f"Expected `target` to hold class indices (int64), but got {target.dtype}. Probability targets and label "
            "smoothing have no meaning for this loss, which compares one true class with the false ones."
        )
    if target.dtype not in (torch.int64, torch.uint8):
        raise TypeError(f"Expected `target` to hold class indices (int64), but got {target.dtype}.")
    class_dim = 0 if logits.dim() == 1 else 1
    K = logits.shape[class_dim]
    expected = logits.shape[:class_dim] + logits.shape[class_dim + 1 :]
    if target.shape != expected:
        raise ValueError(
            f"Expected `target` of shape {tuple(expected)} for `logits` of shape {tuple(logits.shape)}, "
            f"but got {tuple(target.shape)}."
        )
    if fewest_classes > K:
        raise ValueError(
            f"Expected at least {fewest_classes} classes, but dimension {class_dim} of `logits` has size {K}."
        )
    if weight is not None and weight.shape != (K,):
        raise ValueError(f"Expected `weight` of shape ({K},), one for each class, but got {tuple(weight.shape)}.")
    check_reduction(reduction)


def check_reduction(reduction: str) -> None:
    """Refuse an unknown reduction."""
    if reduction not in _REDUCTIONS:
        raise ValueError(f"Expected `reduction` to be one of {_REDUCTIONS}, but got {reduction!r}.")


def check_pc_settings(margin: float, logit_weight: float, constraint: str) -> None:
    """Refuse settings with which PC-LC has no meaning."""
    if not 0 < margin <= 1:
        raise ValueError(f"Expected `margin` to lie in (0, 1], but got {margin}.")
    if not 0 <= logit_weight < float("inf"):
        raise ValueError(f"Expected `logit_weight` to be finite and at least 0, but got {logit_weight}.")
    if constraint not in ("hard", "soft"):
        raise ValueError(f'Expected `constraint` to be "hard" or "soft", but got {constraint!r}.')


def check_alpha(alpha: float) -> None:
    """Refuse an exponent with which guided complement entropy has no meaning."""
    if not 0 <= alpha < float("inf"):
        raise ValueError(f"Expected `alpha` to be finite and at least 0, but got {alpha}.")


def as_rows(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Logits as (N, K, D) and labels as (N, D), without a copy where memory allows."""
    target = target.long()
    if logits.dim() == 1:
        logits, target = logits[None], target[None]
    if logits.dim() == 2:  # not through flatten, which cannot guess the sizes of an empty batch
        return logits.unsqueeze(2), target.unsqueeze(1)
    return logits.flatten(2), target.flatten(1)


def reduce_rows(
    loss: Tensor, labels: Tensor, shape: torch.Size, weight: Tensor | None, ignore_index: int, reduction: str
) -> Tensor:
    """Weigh and reduce the losses of rows, (N, D), as cross-entropy does.

    Args:
        loss: zero where the label is `ignore_index`.
        labels: (N, D), as :func:`as_rows` gives them.
        shape: of the target as the user gave it, and of the result of "none".
        weight: a weight for each class; "mean" divides by the sum of the weights of the rows that count.
        ignore_index: rows with this label are ignored.
        reduction: "none", "mean" or "sum".
    """
    counted = labels != ignore_index
    if weight is not None:
        row_weight = torch.where(counted, weight.to(loss.dtype)[torch.where(counted, labels, 0)], 0)
        loss = loss * row_weight
    if reduction == "none":
        return loss.reshape(shape)
    if reduction == "sum":
        return loss.sum()
    return loss.sum() / (counted.sum() if weight is None else row_weight.sum())


def true_logits(a: Tensor, y: Tensor, ignore_index: int) -> Tensor:
    """The logits of the true classes; a (N, K, ...), y (N, 1, ...), where labels to be ignored are 0."""
    if torch.compiler.is_compiling():
        return a.gather(1, y)
    try:
        return a.gather(1, y)
    except (IndexError, RuntimeError) as error:  # on the CPU only; under vmap values cannot be looked at
        raise ValueError(
            f"Expected every label in `target` to lie in [0, {a.shape[1] - 1}] or to be ignore_index "
            f"({ignore_index}): {error}."
        ) from error
