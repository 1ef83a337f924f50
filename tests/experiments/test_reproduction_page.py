"""The page on reproduction says what the code does."""

import re
from pathlib import Path

import pytest

from pclc.experiments.ambiguities import ambiguity_table, load_ambiguities
from pclc.experiments.experiment import experiment_names
from pclc.experiments.toml import read_toml

PAGE = (Path(__file__).parents[2] / "docs" / "reproduction.md").read_text(encoding="utf-8")


def test_every_ambiguity_is_on_the_page() -> None:
    rows = {line.split("|")[1].strip() for line in PAGE.splitlines() if line.startswith("| `")}
    for entry, line in zip(load_ambiguities(), ambiguity_table().splitlines()[2:], strict=True):
        assert f"`{entry.name}`" in rows
        assert line.rsplit("*Gives:*", 1)[0] in PAGE  # what follows was measured


def test_the_table_takes_what_was_measured() -> None:
    lines = ambiguity_table({"bim-step": "MEASURED"}).splitlines()
    assert lines[2].endswith("*Gives:* MEASURED. |")
    assert {line.count("|") for line in lines} == {5}


def test_what_tries_the_other_choice_exists() -> None:
    for entry in load_ambiguities():
        where = [name for name in experiment_names() if re.search(rf"\b{name}\b", entry.measured_by)]
        wanted = re.findall(r"`([^`]+)`", entry.measured_by)
        for name in where:
            text = str(read_toml("definitions", name))
            assert all(label in text for label in wanted), entry.name
        assert where or not entry.measured_by or "--variant" in entry.measured_by


def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "reproduction.md", "exec"), {})
