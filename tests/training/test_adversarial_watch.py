"""The watch for catastrophic overfitting: it fires once when robustness is lost, and is silent otherwise."""

import pytest

from pclc.training.watch import absence_notice, collapse_notice, has_collapsed


@pytest.mark.parametrize(
    "robust",
    [
        [],
        [0.0],
        [0.4],
        [0.1, 0.2, 0.3],
        [0.40, 0.36, 0.33, 0.30],  # robust overfitting: slow, and not this
        [0.40, 0.21],  # more than half is left
        [0.09, 0.0],  # there was little to lose
        [0.0, 0.0, 0.0],
    ],
)
def test_silent(robust: list[float]) -> None:
    assert not has_collapsed(robust)
    assert collapse_notice(robust) is None


@pytest.mark.parametrize("robust", [[0.4, 0.0], [0.2, 0.4, 0.19], [0.11, 0.005], [0.9, 0.8, 0.44]])
def test_fires(robust: list[float]) -> None:
    notice = collapse_notice(robust)
    assert notice is not None
    assert f"from {max(robust):.1%} to {robust[-1]:.1%}" in notice
    for advice in ("more steps", "smaller alpha or eps", "PGD instead of one step"):
        assert advice in notice


def test_said_once_until_it_happens_again() -> None:
    course = [0.4, 0.41, 0.02, 0.01, 0.0, 0.35, 0.36, 0.03]
    said = [epoch for epoch in range(len(course)) if collapse_notice(course[: epoch + 1])]
    assert said == [2, 7]


def test_a_run_that_was_never_robust() -> None:
    assert absence_notice([0.02, 0.058, 0.0, 0.0, 0.0]).startswith("Robust accuracy was never above 5.8%")  # type: ignore[union-attr]
    assert absence_notice([0.0] * 4) is None, "which is a trial"
    assert absence_notice([0.0, 0.0, 0.3, 0.0, 0.0]) is None, "which has fallen"
