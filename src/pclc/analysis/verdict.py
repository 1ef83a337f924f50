"""Whether our runs agree with a published figure, said only where the runs can tell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev
from typing import Literal

from pclc.evaluation.statistics import student_quantile

Judgement = Literal["reproduced", "differs", "underpowered", "not run"]


@dataclass(frozen=True)
class Verdict:
    """A published figure beside ours.

    Attributes:
        judgement: "reproduced": the published figure lies in the interval; "differs": it does not; "underpowered": the
            interval is too wide to decide, or there is one run; "not run": there is none.
        published: the figure in print.
        runs: how many of ours.
        mean: of our runs; None without any.
        std: sample standard deviation; None with fewer than two runs.
        low: where the 95 % prediction interval for one more run begins, rounding of the published figure included.
        high: where it ends.
    """

    judgement: Judgement
    published: float
    runs: int
    mean: float | None = None
    std: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def outside(self) -> bool:
        """Whether the published figure lies outside the interval, however wide that is."""
        return self.low is not None and self.high is not None and not self.low <= self.published <= self.high

    @property
    def difference(self) -> float | None:
        """Ours minus published."""
        return None if self.mean is None else self.mean - self.published


def judge(published: float, ours: Sequence[float], *, rounding: float = 0.05, widest: float = 5.0) -> Verdict:
    """Judge a published figure by our runs.

    The published figure is one run of somebody's, so it is held against the 95 % prediction interval of a single run,
    mean ± t(n - 1) s sqrt(1 + 1/n), widened by the rounding in print. Where it reaches further than `widest` on either
    side the runs scatter too much to speak of one value, and whether the figure is `outside` is said beside that.

    Args:
        published: the figure in print.
        ours: one figure a seed.
        rounding: half a unit of the last digit in print.
        widest: the largest half-width of the interval that still decides, without the rounding.

    Example:
        >>> judge(39.7, [45.0, 45.6, 46.2]).judgement
        'differs'
        >>> judge(44.7, [45.0, 45.6, 46.2]).judgement
        'reproduced'
        >>> judge(39.7, [35.0, 45.6, 56.2]).judgement, judge(39.7, [39.7]).judgement
        ('underpowered', 'underpowered')
    """
    if not all(math.isfinite(value) for value in (published, *ours)):
        raise ValueError(f"Expected finite figures, but got {published!r} and {list(ours)!r}.")
    n = len(ours)
    if n == 0:
        return Verdict("not run", published, 0)
    centre = mean(ours)
    if n == 1:
        return Verdict("underpowered", published, 1, centre)
    std = stdev(ours)
    half = student_quantile(0.95, n - 1) * std * math.sqrt(1 + 1 / n)
    low, high = centre - half - rounding, centre + half + rounding
    judgement: Judgement = "reproduced" if low <= published <= high else "differs"
    return Verdict("underpowered" if half > widest else judgement, published, n, centre, std, low, high)


def judge_contrast(
    published: tuple[float, float],
    ours: tuple[Mapping[int, float], Mapping[int, float]],
    *,
    rounding: float = 0.05,
    widest: float = 5.0,
) -> Verdict:
    """Judge a published difference, first minus second, by our differences at the same seeds.

    Args:
        published: the two figures in print.
        ours: by seed, for both; seeds that only one of them has are left out.
        rounding: half a unit of the last digit in print, of each figure.
        widest: as in :func:`judge`.

    Example:
        >>> verdict = judge_contrast((72.3, 49.0), ({0: 73.0, 1: 73.5, 2: 72.8}, {0: 49.8, 1: 50.0, 2: 49.4}))
        >>> verdict.judgement, round(verdict.mean, 1)
        ('reproduced', 23.4)
    """
    first, second = ours
    differences = [first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]
    return judge(published[0] - published[1], differences, rounding=2 * rounding, widest=widest)
