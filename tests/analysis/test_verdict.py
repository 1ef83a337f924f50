"""Verdicts: the interval is the textbook's, and nothing is called reproduced that the runs cannot tell."""

import math

import numpy as np
import pytest
from scipy import stats

from pclc.analysis import Verdict, judge, judge_contrast, student_quantile


@pytest.mark.parametrize("degrees", [1, 2, 3, 4, 5, 9, 10, 29, 100, 999])
@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_quantiles_are_scipys(confidence: float, degrees: int) -> None:
    expected = stats.t.ppf((1 + confidence) / 2, degrees)
    assert student_quantile(confidence, degrees) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("arguments", [(0.0, 3), (1.0, 3), (0.95, 0)])
def test_quantiles_refuse(arguments: tuple[float, int]) -> None:
    with pytest.raises(ValueError, match=r"Expected `(confidence|degrees)` to be"):
        student_quantile(*arguments)


def test_the_interval() -> None:
    ours = [45.0, 45.6, 46.3, 44.9]
    verdict = judge(45.0, ours)
    half = stats.t.ppf(0.975, 3) * np.std(ours, ddof=1) * math.sqrt(1 + 1 / 4)
    assert verdict.low == pytest.approx(np.mean(ours) - half - 0.05)
    assert verdict.high == pytest.approx(np.mean(ours) + half + 0.05)
    assert (verdict.runs, verdict.mean, verdict.std) == (
        4,
        pytest.approx(np.mean(ours)),
        pytest.approx(np.std(ours, ddof=1)),
    )


def test_it_covers_one_more_run_in_95_of_100_cases() -> None:
    runs = np.random.default_rng(0).normal(50.0, 0.5, size=(4000, 6))
    held = [judge(row[0], row[1:].tolist(), rounding=0).judgement == "reproduced" for row in runs]
    assert np.mean(held) == pytest.approx(0.95, abs=0.012)


def test_edges_of_the_interval() -> None:
    ours = [45.0, 45.6, 46.2]
    verdict = judge(45.0, ours)
    assert verdict.low is not None
    assert verdict.high is not None
    for published, judgement in ((verdict.low, "reproduced"), (verdict.low - 0.01, "differs")):
        assert judge(published, ours).judgement == judgement
    for published, judgement in ((verdict.high, "reproduced"), (verdict.high + 0.01, "differs")):
        assert judge(published, ours).judgement == judgement
    assert judge(40.0, ours).difference == pytest.approx(5.6)


def test_what_the_runs_cannot_tell() -> None:
    assert judge(39.7, []) == Verdict("not run", 39.7, 0)
    assert judge(39.7, []).difference is None
    assert judge(39.7, [39.7]).judgement == "underpowered"
    half_width_of_one = 1 / (student_quantile(0.95, 2) * math.sqrt(4 / 3))  # standard deviation that gives it
    for half, judgement in ((4.9, "reproduced"), (5.1, "underpowered")):
        assert judge(50.0, [50.0 + half * half_width_of_one * d for d in (-1, 0, 1)]).judgement == judgement
    assert [judge(figure, [35.0, 45.0, 55.0]).outside for figure in (39.7, -5.0, 95.6)] == [False, True, True]
    assert not judge(39.7, [45.0]).outside
    assert judge(0.558, [0.50, 0.56, 0.62], rounding=0.0005, widest=0.05).judgement == "underpowered"


def test_rounding_in_print() -> None:
    assert judge(0.0, [0.04, 0.04, 0.04]).judgement == "reproduced"
    assert judge(0.0, [0.06, 0.06, 0.06]).judgement == "differs"


def test_contrasts_are_paired_by_seed() -> None:
    """Seeds that scatter widely but together leave a narrow difference."""
    ce, pc = {0: 30.0, 1: 40.0, 2: 50.0, 7: 1.0}, {2: 60.1, 1: 50.0, 0: 39.9, 5: 99.0}
    verdict = judge_contrast((50.0, 40.0), (pc, ce))
    assert (verdict.judgement, verdict.runs, verdict.published) == ("reproduced", 3, 10.0)
    assert verdict.mean == pytest.approx(10.0)
    assert judge_contrast((60.0, 40.0), (pc, ce)).judgement == "differs"
    exact = ({0: 10.08, 1: 10.08}, {0: 0.0, 1: 0.0})
    assert judge_contrast((10.0, 0.0), exact).judgement == "reproduced"  # both figures are rounded


def test_figures_have_to_be_finite() -> None:
    with pytest.raises(ValueError, match="Expected finite figures"):
        judge(1.0, [float("nan"), 1.0])
