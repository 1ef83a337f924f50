"""What a run shows while it goes on."""

from collections.abc import Callable

import pytest
import rich.console

from pclc.training import progress


@pytest.fixture
def wait(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Time goes by when the test says so."""
    now = [0.0]
    monkeypatch.setattr(rich.console, "monotonic", lambda: now[0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])

    def wait(seconds: float) -> None:
        now[0] += seconds

    return wait


def entry(epoch: int) -> dict[str, object]:
    return {"epoch": epoch, "loss": 0.5, "accuracy": 0.75, "images_per_second": 1234.0}


def test_a_run_of_long_epochs_knows_its_end(wait: Callable[[float], None], capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("digits ce", epochs=5, done=1, shown=True) as bar:
        assert bar is not None
        (task,) = bar.display.tasks
        for quarter in range(1, 5):  # also before the first epoch is over
            wait(600)
            bar.step(quarter / 4)
            assert task.completed == 1 + quarter / 4
            assert quarter == 1 or task.time_remaining == pytest.approx(3 * 2400 + (4 - quarter) * 600)
        bar(entry(2))
        wait(2400)
        bar(entry(3))
    # Where the error stream is a file there is no line that moves.
    assert "digits ce epoch 3 of 5: loss 0.5000 acc 0.7500 1,234 img/s, 1:20:00 left\n" in capsys.readouterr().err


def test_short_steps_are_not_looked_at(wait: Callable[[float], None]) -> None:
    with progress.bar("digits ce", epochs=5, done=0, shown=True) as bar:
        assert bar is not None
        wait(0.5)
        bar.step(0.5)
        assert bar.display.tasks[0].completed == 0


def test_neither_the_epoch_nor_the_time_left_is_cut(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with progress.bar("digits pc-lc", epochs=20, done=19, shown=True) as bar:
        assert bar is not None
        bar(entry(20) | {"validation_accuracy": 0.5, "validation_robust_accuracy": 0.5})
    shown = " ".join(capsys.readouterr().err.split())
    for words in ("20/20", "0:00:00 left 0:00:00", "robust 0.5000", "1,234 img/s"):
        assert words in shown
