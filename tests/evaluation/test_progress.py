"""The bar of an evaluation or audit."""

import pytest
import rich.console

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


def test_attacks_that_take_minutes_have_an_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(rich.console, "monotonic", lambda: now[0])

    def work() -> None:
        with bar(10, shown=True) as advance:
            for _ in range(4):
                now[0] += 60
                advance("an attack", 2)
            raise InterruptedError

    with pytest.raises(InterruptedError):
        work()
    assert "left 0:01:00" in capsys.readouterr().err
