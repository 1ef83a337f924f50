"""Exact statistics of counts, and Student's interval of differences over seeds; numpy is enough."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

METHOD = "Clopper-Pearson"
CONFIDENCE = 0.95
# Differences that scatter by no more than this share of the figures do so by the rounding of float64.
_ROUNDING = 1e-12

Alternative = Literal["two-sided", "greater"]


@dataclass(frozen=True)
class Interval:
    """Two bounds."""

    low: float
    high: float


@dataclass(frozen=True)
class SeedComparison:
    """Two methods over the same seeds: the mean of first minus second, Student's interval of it, and its p value.

    Where the seeds do not tell how much differences scatter, the interval is unbounded and the p value 1.
    """

    difference: float
    interval: Interval
    confidence: float
    p_value: float
    seeds: int


def clopper_pearson(successes: int, n: int, confidence: float = CONFIDENCE) -> Interval:
    """The exact interval of a share (Clopper and Pearson, 1934): it covers the truth at least so often.

    Example:
        >>> interval = clopper_pearson(0, 100)
        >>> interval.low, round(interval.high, 6)
        (0.0, 0.036217)
    """
    one_sided = 1 - (1 - _confidence(confidence)) / 2
    return Interval(lower_bound(successes, n, one_sided), upper_bound(successes, n, one_sided))


def lower_bound(successes: int, n: int, confidence: float = CONFIDENCE) -> float:
    """The exact one-sided bound: the share is at least this, at this confidence.

    Example:
        >>> round(lower_bound(10, 10), 6)  # 0.05 ** (1 / 10)
        0.741134
    """
    _check_counts(successes, n)
    alpha = 1 - _confidence(confidence)
    return 0.0 if successes == 0 else _bisect(lambda p: binomial_tail(successes, n, p) - alpha, 0.0, 1.0)


def upper_bound(successes: int, n: int, confidence: float = CONFIDENCE) -> float:
    """The exact one-sided bound: the share is at most this, at this confidence."""
    return 1 - lower_bound(n - successes, n, confidence)


def paired_test(only_first: int, only_second: int, alternative: Alternative = "two-sided") -> float:
    """The exact p value of McNemar's test: of the pairs that differ, each side would win half by chance alone.

    Args:
        only_first: pairs in which only the first succeeded.
        only_second: pairs in which only the second did.
        alternative: "greater" asks whether the first wins more often.

    Example:
        >>> round(paired_test(8, 1), 6)
        0.039063
    """
    if min(only_first, only_second) < 0:
        raise ValueError(f"Expected counts of at least 0, but got {only_first} and {only_second}.")
    n = only_first + only_second
    if alternative == "greater":
        return binomial_tail(only_first, n, 0.5)
    if alternative != "two-sided":
        raise ValueError(f'Expected `alternative` to be "two-sided" or "greater", but got {alternative!r}.')
    return min(1.0, 2 * binomial_tail(max(only_first, only_second), n, 0.5))


def compare_over_seeds(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE, *, step: float = 0.0
) -> SeedComparison:
    """Student's interval of the paired differences: the i-th figures of both belong to the same seed.

    A few seeds whose differences are all the same do not show that others would be, too: figures that come in steps
    often agree by chance. So the standard deviation is taken to be at least step / sqrt(6), that of the difference of
    two figures rounded to `step`. Where differences do not scatter and no step is given, no interval can be estimated,
    and it reaches from -inf to inf.

    Args:
        first: a figure for each seed.
        second: those of the other method.
        confidence: of the interval.
        step: the least by which a figure can change: 1 / N of an accuracy over N examples, 100 / N in percent.

    Example:
        >>> comparison = compare_over_seeds([0.52, 0.54, 0.53], [0.50, 0.51, 0.51])
        >>> round(comparison.difference, 4), round(comparison.interval.low, 4), round(comparison.interval.high, 4)
        (0.0233, 0.009, 0.0377)
        >>> compare_over_seeds([0.52, 0.54], [0.50, 0.52]).interval
        Interval(low=-inf, high=inf)
        >>> round(compare_over_seeds([0.52, 0.54], [0.50, 0.52], step=1 / 1000).interval.low, 4)
        0.0163
    """
    _confidence(confidence)
    if not (math.isfinite(step) and step >= 0):
        raise ValueError(f"Expected `step` to be at least 0, but got {step!r}.")
    if len(first) != len(second) or len(first) < 2:
        raise ValueError(
            f"Expected `first` and `second` to have a figure for each of at least 2 seeds, "
            f"but got {len(first)} and {len(second)}."
        )
    n = len(first)
    differences = np.subtract(first, second, dtype=np.float64)
    mean, spread = float(differences.mean()), max(float(differences.std(ddof=1)), step / math.sqrt(6))
    if spread <= _ROUNDING * float(np.abs([first, second]).max()):
        return SeedComparison(mean, Interval(-math.inf, math.inf), confidence, 1.0, n)
    error = spread / math.sqrt(n)
    reach = student_quantile(confidence, n - 1) * error
    p_value = max(0.0, 1 - student_within(abs(mean) / error, n - 1))  # rounded, it may be more than 1
    return SeedComparison(mean, Interval(mean - reach, mean + reach), confidence, p_value, n)


def binomial_tail(k: int, n: int, p: float) -> float:
    """P(X >= k) for X of n trials with probability p, as a sum of all its terms."""
    if k <= 0:
        return 1.0
    if p <= 0 or k > n:
        return 0.0
    if p >= 1:
        return 1.0
    logs = _log_factorials(n)
    terms = np.arange(k, n + 1)
    log_terms = logs[n] - logs[terms] - logs[n - terms] + terms * math.log(p) + (n - terms) * math.log1p(-p)
    return min(1.0, float(np.exp(log_terms).sum()))


def student_within(t: float, degrees: int) -> float:
    """P(|T| <= t) for Student's T with a whole number of degrees: a finite sum (Abramowitz and Stegun, 26.7.3-4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = degrees % 2
    total, term = 0.0, cosine if odd else 1.0
    for i in range(1 + odd, degrees, 2):
        total += term
        term *= cosine**2 * i / (i + 1)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def student_quantile(confidence: float, degrees: int) -> float:
    """The t with P(-t <= T <= t) = confidence, for Student's T with at least one degree of freedom.

    Example:
        >>> f"{student_quantile(0.95, 4):.4f}"
        '2.7764'
    """
    _confidence(confidence)
    if degrees < 1:
        raise ValueError(f"Expected `degrees` to be at least 1, but got {degrees!r}.")
    high = 1.0
    while student_within(high, degrees) < confidence:
        high *= 2
    return _bisect(lambda t: student_within(t, degrees) - confidence, 0.0, high)


def _bisect(rising: Callable[[float], float], low: float, high: float) -> float:
    """The root of a function that rises from below to above zero."""
    for _ in range(60):
        middle = (low + high) / 2
        if rising(middle) < 0:
            low = middle
        else:
            high = middle
    return (low + high) / 2


@lru_cache(maxsize=8)
def _log_factorials(n: int) -> NDArray[np.float64]:
    return np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])


def _check_counts(successes: int, n: int) -> None:
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"Expected at least 1 trial and 0 to n successes, but got {successes} of {n}.")


def _confidence(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"Expected `confidence` to be between 0 and 1, but got {confidence!r}.")
    return confidence
