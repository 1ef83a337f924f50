"""What every loss here shares with `torch.nn.functional.cross_entropy`: which inputs it takes, and how rows reduce."""

from collections.abc import Callable

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
            f"Expected `target` to hold class indices (int64), but got {target.dtype}: probability targets and label "
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
    if reduction not in _REDUCTIONS:
        raise ValueError(f"Expected `reduction` to be one of {_REDUCTIONS}, but got {reduction!r}.")


def reduce_rows(
    row_loss: Callable[[Tensor, Tensor], Tensor],
    logits: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: str,
) -> Tensor:
    """Lay the inputs out as (N, K, D) and (N, D), apply `row_loss`, weigh and reduce as cross-entropy does.

    Args:
        row_loss: maps (N, K, D) logits and (N, D) labels to (N, D) losses, zero where the label is `ignore_index`.
        logits: (K,), (N, K) or (N, K, d1, ...).
        target: class indices, of the shape of the logits without their class dimension.
        weight: a weight for each class; "mean" divides by the sum of the weights of the rows that count.
        ignore_index: rows with this label count nowhere.
        reduction: "none", "mean" or "sum".
    """
    shape = target.shape
    target = target.long()
    if logits.dim() == 1:
        logits, target = logits[None], target[None]
    # A plain matrix must not pass through reshape, which would fix the sizes of an empty batch.
    rows = logits.unsqueeze(2) if logits.dim() == 2 else logits.flatten(2)
    labels = target.unsqueeze(1) if logits.dim() == 2 else target.flatten(1)
    loss = row_loss(rows, labels)
    counted = labels != ignore_index
    if weight is not None:
        row_weight = torch.where(counted, weight.to(loss.dtype)[torch.where(counted, labels, 0)], 0)
        loss = loss * row_weight
    if reduction == "none":
        return loss.reshape(shape)
    if reduction == "sum":
        return loss.sum()
    return loss.sum() / (counted.sum() if weight is None else row_weight.sum())
