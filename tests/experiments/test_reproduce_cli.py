"""The command: plan, run, table and figures of a small experiment."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from pclc.cli.app import app
from pclc.experiments.experiment import ANALYSES, experiment_names


def run(*arguments: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["reproduce", *map(str, arguments), "--device", "cpu"])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture
def options(tmp_path: Path) -> list[str | Path]:
    return ["--examples", "40", "--epochs", "1", "--jobs", "1", "--out", tmp_path / "store"]


def test_plan_run_and_table(small: Path, options: list[str | Path], tmp_path: Path) -> None:
    plan = run(small, *options, "--plan")
    assert "4 cells (only the first 40 test images, at most 1 epochs a phase), 0 of them finished" in plan
    assert not (tmp_path / "store").exists(), "nothing is run"
    text = run(small, *options, "--seeds", "1")
    assert "SUBSET: only the first 40 test images, at most 1 epochs a phase" in text
    assert "transfer fgsm 0.1" in text
    assert "worst case of all" in text
    assert "pc-lc: seeds 0; not run: 1" in text
    assert "contrast pc-lc - ce" in text
    content = json.loads(run(small, *options, "--seeds", "1", "--json"))
    (found,) = content["experiments"]
    assert content["failures"] == {}
    assert found == json.loads((tmp_path / "store/tables/small-examples40-epochs1.json").read_text())
    assert found["blocks"][0]["not_run"] == {"ce": [1], "pc-lc": [1]}
    again = json.loads(run(small, *options, "--plan", "--json"))
    assert [row["state"] for row in again["cells"]] == ["finished", "to do"] * 2
    assert {row["cost"] for row in again["cells"]} == {"-", "measured"}


def test_every_experiment_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    done = json.loads(run("all", "--smoke", "--jobs", "1", "--out", tmp_path / "store", "--no-weights", "--json"))
    assert done["failures"] == {}
    assert [found["experiment"] for found in done["experiments"]] == [f"{name}-smoke" for name in experiment_names()]
    for found in done["experiments"]:
        (block,) = found["blocks"]
        assert not any(block["not_run"].values())
        assert all(len(entry["values"]) == 1 for entry in block["entries"])
    stems = [Path(stem) for found in done["experiments"] for stem in found["figures"]]
    assert {stem.name.removesuffix("-digits-" + stem.name.rpartition("-")[2]) for stem in stems} == {
        f"{name}-smoke-examples10-epochs1" for name in ("figure1", "figure2", "figure3", "gaps")
    }
    assert {stem.name.rpartition("-")[2] for stem in stems} == set(ANALYSES)
    for stem in stems:
        for suffix in (".svg", ".png", ".csv"):
            assert Path(f"{stem}{suffix}").stat().st_size > 100
    (gaps,) = (stem for stem in stems if stem.name.endswith("-gaps"))
    assert "pgd 0.005," in Path(f"{gaps}.csv").read_text(), "attacks go by the experiment's names"
    rows = {entry["row"] for found in done["experiments"] for entry in found["blocks"][0]["entries"]}
    assert {"fgsm 0.3 overlap", "clean gap", "pgd 0.005 gap", "worst case 8/255"} <= rows
    assert not [row for row in rows if " from " in row]


def test_refusals(small: Path, options: list[str | Path]) -> None:
    for arguments, sentence in (
        (("table9",), "Expected `name` to be one of adversarial, figure1"),
        ((small, "--datasets", "mnist"), "Expected `datasets` to be among those of small (digits), but got 'mnist'."),
        ((small, "--losses", "gce"), "Expected `columns` to be among those of small (ce, pc-lc), but got 'gce'."),
        ((small, "--variant", "ours"), "Expected `variant` to be one of paper, authors, but got 'ours'."),
        ((small, "--seeds", "0"), "Expected `seeds` to be at least 1, but got 0."),
        ((small, "--examples", "0"), "Expected `examples` to be at least 1, but got 0."),
        ((small, "--smoke", "--seeds", "1"), "Expected --smoke without data sets, losses, seeds, examples and epochs"),
        ((small, "--engine", "slurm"), "Expected `engine` to be one of local, ray, but got 'slurm'."),
    ):
        done = CliRunner().invoke(app, ["reproduce", *map(str, [*options[-2:], *arguments]), "--device", "cpu"])
        assert isinstance(done.exception, ValueError)
        assert str(done.exception).startswith(sentence)


def test_a_cell_that_fails_is_said(small: Path, options: list[str | Path]) -> None:
    options = ["--examples", "999", *options[2:]]
    done = CliRunner().invoke(app, ["reproduce", str(small), *map(str, options), "--device", "cpu"])
    assert done.exit_code == 1
    assert "pclc: 4 cells failed: ValueError: Expected `examples` to be at most 360" in done.stderr
    assert "not run" in done.stdout


def test_all_takes_what_an_experiment_has(tmp_path: Path) -> None:
    plan = json.loads(
        run("all", "--datasets", "mnist", "--seeds", "1", "--losses", "ce", "--plan", "--json", "--out", tmp_path)
    )
    places = {(row["experiment"], row["data set"], row["column"]) for row in plan["cells"]}
    assert ("table1", "mnist", "ce") in places
    assert ("figure3", "mnist", "ce") in places
    assert {row["data set"] for row in plan["cells"] if row["experiment"] != "adversarial"} == {"mnist"}
