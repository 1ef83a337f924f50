"""docs/training.md: its examples run, and its tables know every method, recipe and field."""

import re
from dataclasses import fields
from pathlib import Path

from pclc.training import METHODS, AdversarialConfig

TEXT = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_examples_run() -> None:
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
    assert len(blocks) == 8
    for block in blocks:
        exec(compile(block, "docs/training.md", "exec"), names)


def test_tables_are_complete() -> None:
    for method in METHODS:
        assert f"| `{method}` |" in TEXT
    for field in fields(AdversarialConfig):
        assert f"`{field.name}`" in TEXT
