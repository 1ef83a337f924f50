"""Which class successful attacks lead to from which."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pclc.analysis.rows import Row


@dataclass(frozen=True)
class ConfusionResult:
    """Counts by true and predicted class.

    Attributes:
        name: "clean", or the attack.
        classes: their names.
        counts: (K, K), true classes down and predicted ones across.
    """

    name: str
    classes: tuple[str, ...]
    counts: tuple[tuple[int, ...], ...]

    def rows(self) -> list[Row]:
        """A row for each true class."""
        return [
            {"attack": self.name, "true": true, **dict(zip(self.classes, counts, strict=True))}
            for true, counts in zip(self.classes, self.counts, strict=True)
        ]

    def figures(self) -> dict[str, float]:
        """The share in percent of a class's successful attacks that end in another: "fgsm 0.3 from 5 to 8"."""
        figures = {}
        for true, counts in enumerate(self.counts):
            fooled = sum(counts) - counts[true]
            for predicted, count in enumerate(counts):
                if fooled and predicted != true:
                    name = f"{self.name} from {self.classes[true]} to {self.classes[predicted]}"
                    figures[name] = 100 * count / fooled
        return figures


def confusion(name: str, labels: Tensor, predictions: Tensor, classes: tuple[str, ...]) -> ConfusionResult:
    """Count true and predicted classes.

    Example:
        >>> confusion("clean", torch.tensor([0, 0, 1]), torch.tensor([0, 1, 1]), ("a", "b")).counts
        ((1, 1), (0, 1))
    """
    K = len(classes)
    if len(labels) != len(predictions):
        raise ValueError(f"Expected a prediction for each label, but got {len(predictions)} for {len(labels)}.")
    counts = torch.bincount(labels * K + predictions, minlength=K * K).reshape(K, K)
    return ConfusionResult(name, classes, tuple(tuple(row) for row in counts.tolist()))
