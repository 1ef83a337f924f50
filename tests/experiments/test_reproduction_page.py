"""The page on reproduction says what the code does."""

import re
import tomllib
from pathlib import Path

import pytest

from pclc.experiments.ambiguities import ambiguity_table, load_ambiguities
from pclc.experiments.experiment import experiment_names, parse_experiment
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


def test_an_experiment_of_your_own() -> None:
    """The one on the page is one, and all keys that a file may have are there."""
    (block,) = re.findall(r"```toml\n(.*?)```", PAGE, flags=re.DOTALL)
    content = tomllib.loads(block)
    assert len(parse_experiment("margins", content).cells()) == 12
    section = PAGE.partition("### An experiment of your own")[2].partition("\n## ")[0]
    (group,) = content["groups"]
    for wrong in ({}, {"groups": [group | {"wrong": 1}]}, {"groups": [group | {"arms": [{"wrong": 1}]}]}):
        with pytest.raises(ValueError, match=r"Expected the keys of .* but got 'wrong'") as refused:
            parse_experiment("margins", content | (wrong or {"wrong": 1}))
        keys = re.findall(r"\w+", str(refused.value).partition("to be among")[2].partition(", but got")[0])
        assert [key for key in keys if not re.search(rf"\b{key}\b", section)] == []


def test_blocks_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert blocks
    for block in blocks:
        exec(compile(block, "reproduction.md", "exec"), {})
