"""An experiment on digits that takes a second a cell, and what its cells gave."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pclc
from pclc.experiments.experiment import Cell
from pclc.experiments.store import Store

SMALL = """
title = "A small one"

[[groups]]
datasets = ["digits"]
model = "lenet8"
substitute = "lenet8"
seeds = 2
arms = [{ column = "ce", loss = "ce" }, { column = "pc-lc", loss = "pc-lc" }]

[groups.attacks]
"fgsm 0.1" = 'fgsm(eps=0.1, stop="never")'
"pgd 0.1" = 'pgd(eps=0.1, alpha=0.02, steps=10, stop="never")'

[groups.transfer]
"transfer fgsm 0.1" = 'fgsm(eps=0.1, stop="never")'
"""

EXECUTION = pclc.Execution(device="cpu")


def outcome(store: Path, cells: Sequence[Cell]) -> list[Any]:
    """All that cells gave, times left out, and the hash of the code, which somebody may be editing meanwhile."""
    return [
        _without_times({**_loaded(store, cell), "files": None, "code": None, "evaluation": _evaluation(store, cell)})
        for cell in cells
    ]


def _loaded(store: Path, cell: Cell) -> dict[str, Any]:
    result = Store(store).load(cell)
    assert result is not None
    return result


def _evaluation(store: Path, cell: Cell) -> Any:
    return json.loads(json.dumps(Store(store).details(cell, "evaluation")))


def _without_times(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _without_times(value) for name, value in content.items() if "seconds" not in name}
    if isinstance(content, list):
        return [_without_times(item) for item in content]
    return content
