"""Shares with bounds, for examples that are right or wrong and for examples that are right now and then."""

import math
from dataclasses import dataclass

from torch import Tensor

from pclc.evaluation.statistics import clopper_pearson


@dataclass(frozen=True)
class Share:
    """A mean over examples with its interval.

    Attributes:
        value: the mean.
        low, high: a two-sided interval that covers the truth at least 95 % of the time, early looks included.
        n: examples.
    """

    value: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, scores: Tensor, confidence: float) -> "Share":
        """Of flags (Clopper-Pearson), or of numbers in [0, 1], one an example (Hoeffding, 1963).

        Example:
            >>> import torch
            >>> print(Share.of(torch.tensor([True] * 75 + [False] * 25), confidence=0.95))
            75.0 % (65.3 to 83.1)
            >>> print(Share.of(torch.full((100,), 0.75), confidence=0.95))
            75.0 % (61.4 to 88.6)
        """
        n, value = len(scores), float(scores.double().mean())
        if not scores.is_floating_point():
            interval = clopper_pearson(int(scores.sum()), n, confidence)
            return cls(value, interval.low, interval.high, n)
        reach = hoeffding(n, (1 - confidence) / 2)
        return cls(value, max(0.0, value - reach), min(1.0, value + reach), n)

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


def hoeffding(n: int, alpha: float) -> float:
    """How far the mean of n numbers of width 1 may lie on one side of its expectation, but for a chance of alpha."""
    return math.sqrt(math.log(1 / alpha) / (2 * n))
