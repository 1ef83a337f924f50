"""The losses as modules: thin shells around the functions, drop-in replacements for `nn.CrossEntropyLoss`."""

from torch import Tensor, nn

from pclc.losses import functional
from pclc.losses.functional import Constraint, Reduction
from pclc.losses.inputs import check_alpha, check_pc_settings, check_reduction


class _Loss(nn.Module):
    """The settings that cross-entropy's module has too. Every loss checks its settings before the first batch."""

    weight: Tensor | None

    def __init__(self, weight: Tensor | None = None, ignore_index: int = -100, reduction: Reduction = "mean") -> None:
        check_reduction(reduction)
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction: Reduction = reduction


class PCLoss(_Loss):
    """:func:`pclc.functional.pc_loss` as a module; the defaults are the paper's.

    Example:
        >>> import torch
        >>> criterion = PCLoss()
        >>> criterion(torch.tensor([[2.0, 0.0, 0.0], [0.0, 3.0, 1.0]]), torch.tensor([0, 1]))
        tensor(0.6438)
    """

    def __init__(
        self,
        margin: float = 0.995,
        logit_weight: float = 0.05,
        constraint: Constraint = "hard",
        average_classes: bool = False,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        check_pc_settings(margin, logit_weight, constraint)
        super().__init__(weight, ignore_index, reduction)
        self.margin = margin
        self.logit_weight = logit_weight
        self.constraint: Constraint = constraint
        self.average_classes = average_classes

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits (N, K, ...) and class indices (N, ...)."""
        return functional.pc_loss(
            logits,
            target,
            margin=self.margin,
            logit_weight=self.logit_weight,
            constraint=self.constraint,
            average_classes=self.average_classes,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """The settings, for `repr`."""
        return (
            f"margin={self.margin}, logit_weight={self.logit_weight}, constraint={self.constraint!r}, "
            f"average_classes={self.average_classes}"
        )


class GuidedComplementEntropy(_Loss):
    """:func:`pclc.functional.guided_complement_entropy` as a module."""

    def __init__(
        self,
        alpha: float = 1 / 3,
        weight: Tensor | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        check_alpha(alpha)
        super().__init__(weight, ignore_index, reduction)
        self.alpha = alpha

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits (N, K, ...) and class indices (N, ...)."""
        return functional.guided_complement_entropy(
            logits,
            target,
            alpha=self.alpha,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
        )

    def extra_repr(self) -> str:
        """The settings, for `repr`."""
        return f"alpha={self.alpha:.4g}"


class ComplementEntropy(_Loss):
    """:func:`pclc.functional.complement_entropy` as a module."""

    def forward(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of logits (N, K, ...) and class indices (N, ...)."""
        return functional.complement_entropy(
            logits, target, weight=self.weight, ignore_index=self.ignore_index, reduction=self.reduction
        )
