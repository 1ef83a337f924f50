"""The bar of an evaluation or audit."""

import pytest

from pclc.evaluation.progress import bar


def test_a_bar_is_full_at_the_end_of_work_that_needed_less(capsys: pytest.CaptureFixture[str]) -> None:
    with bar(10, shown=True) as advance:
        advance("an attack", 3)
    assert "100 %" in capsys.readouterr().err


def test_a_bar_of_work_that_failed_is_not_full(capsys: pytest.CaptureFixture[str]) -> None:
    def work() -> None:
        with bar(10, shown=True) as advance:
            advance("an attack", 3)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        work()
    assert "100 %" not in capsys.readouterr().err
