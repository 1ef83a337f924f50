"""Every figure against scipy, which users need not have."""

import math

import numpy as np
import pytest
from scipy import stats

from pclc.evaluation import clopper_pearson, compare_over_seeds, lower_bound, paired_test, upper_bound
from pclc.evaluation.statistics import binomial_tail, student_within


@pytest.mark.parametrize(
    ("k", "n"), [(0, 1), (1, 1), (0, 50), (3, 50), (49, 50), (50, 50), (537, 1000), (9999, 10_000)]
)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_clopper_pearson(k: int, n: int, confidence: float) -> None:
    expected = stats.binomtest(k, n).proportion_ci(confidence, method="exact")
    got = clopper_pearson(k, n, confidence)
    assert (got.low, got.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


@pytest.mark.parametrize(("k", "n"), [(0, 20), (7, 20), (20, 20), (4000, 10_000)])
def test_one_sided_bounds(k: int, n: int) -> None:
    low = stats.binomtest(k, n, alternative="greater").proportion_ci(0.95, method="exact").low
    high = stats.binomtest(k, n, alternative="less").proportion_ci(0.95, method="exact").high
    assert lower_bound(k, n) == pytest.approx(low, abs=1e-9)
    assert upper_bound(k, n) == pytest.approx(high, abs=1e-9)


def test_an_interval_covers_as_often_as_it_says() -> None:
    n, truth = 40, 0.83
    covered = sum(
        stats.binom.pmf(k, n, truth)
        for k in range(n + 1)
        if clopper_pearson(k, n).low <= truth <= clopper_pearson(k, n).high
    )
    assert 0.95 <= covered < 0.99


@pytest.mark.parametrize(("a", "b"), [(0, 0), (5, 0), (8, 1), (1, 8), (30, 30), (300, 220)])
def test_paired_test(a: int, b: int) -> None:
    expected = stats.binomtest(a, a + b, 0.5).pvalue if a + b else 1.0
    assert paired_test(a, b) == pytest.approx(expected, rel=1e-8)
    if a + b:
        greater = stats.binomtest(a, a + b, 0.5, alternative="greater").pvalue
        assert paired_test(a, b, "greater") == pytest.approx(greater, rel=1e-8)


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 7, 10, 31])
@pytest.mark.parametrize("t", [0.0, 0.3, 1.96, 12.0])
def test_student(t: float, degrees: int) -> None:
    assert student_within(t, degrees) == pytest.approx(1 - 2 * stats.t.sf(t, degrees), abs=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_compare_over_seeds(n: int) -> None:
    generator = np.random.default_rng(n)
    first, second = generator.normal(0.5, 0.02, n), generator.normal(0.48, 0.02, n)
    expected = stats.ttest_rel(first, second)
    got = compare_over_seeds(first.tolist(), second.tolist())
    interval = expected.confidence_interval(0.95)
    assert got.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    assert (got.interval.low, got.interval.high) == pytest.approx((interval.low, interval.high), rel=1e-8)
    assert (got.difference, got.seeds) == (pytest.approx((first - second).mean()), n)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([0.5, 0.5], [0.5, 0.5]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([0.52, 0.54], [0.50, 0.52]),  # equal but for the last bit
        ([52.3, 51.1, 49.7], [50.2, 49.0, 47.6]),
    ],
)
def test_equal_differences_are_no_certainty(first: list[float], second: list[float]) -> None:
    got = compare_over_seeds(first, second)
    assert got.difference == pytest.approx(first[0] - second[0])
    assert (got.interval.low, got.interval.high, got.p_value) == (-math.inf, math.inf, 1)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_figures_that_come_in_steps_scatter_by_their_rounding(n: int) -> None:
    step = 0.01
    got = compare_over_seeds([0.5] * n, [0.4] * n, step=step)
    error = math.sqrt(2 * step**2 / 12 / n)  # two figures, each uniform within a step
    reach = stats.t.ppf(0.975, n - 1) * error
    assert (got.interval.low, got.interval.high) == pytest.approx((0.1 - reach, 0.1 + reach), rel=1e-8)
    assert got.p_value == pytest.approx(2 * stats.t.sf(0.1 / error, n - 1), rel=1e-6)
    first, second = [0.5, 0.6, 0.4], [0.4, 0.3, 0.4]  # these scatter by more than their steps
    assert compare_over_seeds(first, second, step=step) == compare_over_seeds(first, second)


def test_tails_at_the_ends() -> None:
    assert binomial_tail(0, 5, 0.0) == 1
    assert binomial_tail(1, 5, 0.0) == 0
    assert binomial_tail(5, 5, 1.0) == 1
    assert binomial_tail(6, 5, 0.5) == 0


def test_refusals() -> None:
    with pytest.raises(ValueError, match=r"0 to n successes, but got 3 of 2"):
        clopper_pearson(3, 2)
    with pytest.raises(ValueError, match=r"`confidence` to be between 0 and 1, but got 95"):
        lower_bound(1, 2, 95)
    with pytest.raises(ValueError, match=r"at least 2 seeds, but got 1 and 1"):
        compare_over_seeds([0.5], [0.4])
    with pytest.raises(ValueError, match=r"`step` to be at least 0, but got -0\.1"):
        compare_over_seeds([0.5, 0.4], [0.4, 0.4], step=-0.1)
    with pytest.raises(ValueError, match=r"`alternative`"):
        paired_test(1, 2, "less")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"at least 0, but got -1 and 2"):
        paired_test(-1, 2)


def test_no_p_value_is_below_zero() -> None:
    """The sum of which it is what is left to 1 may be rounded to more."""
    far = ([size + seed % 2 for seed in range(17)] for size in np.geomspace(10, 1e5, 100))
    assert min(compare_over_seeds(first, [0.0] * 17).p_value for first in far) == 0
