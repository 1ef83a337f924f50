"""What the tests of grids share."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small_grid import EXECUTION, SMALL

from pclc.experiments.experiment import Cell, load_experiment
from pclc.experiments.runner import GridSettings


@pytest.fixture
def small(tmp_path: Path) -> Path:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    return file


@pytest.fixture
def cells(small: Path) -> list[Cell]:
    return load_experiment(str(small)).cells(examples=40, epochs=1)


@pytest.fixture
def settings(tmp_path: Path) -> Callable[..., GridSettings]:
    return lambda name="store", **changes: replace(GridSettings(tmp_path / name, EXECUTION), **changes)
