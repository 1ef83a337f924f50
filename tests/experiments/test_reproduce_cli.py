"""The command: plan, run, table and figures of a small experiment."""

import json
import re
from pathlib import Path

import pytest
from made_results import docs_folder, fill
from small_grid import EXECUTION
from typer.testing import CliRunner

from pclc.cli import tables
from pclc.cli.app import app
from pclc.experiments.experiment import Cell, experiment_names, load_experiment
from pclc.experiments.groups import ANALYSES
from pclc.experiments.runner import GridSettings
from pclc.experiments.smoke import smoke
from pclc.experiments.store import Store
from pclc.experiments.values import Selection, choose


def run(*arguments: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["reproduce", *map(str, arguments), "--device", "cpu"])
    assert done.exit_code == code, done.output
    return done.stdout


@pytest.fixture
def options(tmp_path: Path) -> list[str | Path]:
    return ["--examples", "40", "--epochs", "1", "--jobs", "1", "--out", tmp_path / "store"]


def test_plan_run_and_table(small: Path, options: list[str | Path], tmp_path: Path) -> None:
    plan = run(small, *options, "--plan")
    assert "4 cells (only the first 40 test images, at most 1 epochs a phase), 0 of them finished; left: ~" in plan
    assert re.search(r"digits +│ lenet8 +│ pc-lc +│ 2 of 2 │ 0, 1 +│ ~", plan)
    assert not (tmp_path / "store").exists(), "nothing is run"
    text = run(small, *options, "--seeds", "1")
    assert "SUBSET: only the first 40 test images, at most 1 epochs a phase" in text
    assert "transfer fgsm 0.1" in text
    assert "worst of these, all" in text
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


@pytest.fixture(scope="module")
def smoke_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with every experiment as a smoke run, and what the command printed beside it."""
    pytest.importorskip("matplotlib")
    store = tmp_path_factory.mktemp("smoke") / "store"
    printed = run("all", "--smoke", "--jobs", "1", "--out", store, "--no-weights", "--json")
    (store.parent / "printed.json").write_text(printed)
    return store


def test_every_experiment_runs(smoke_store: Path) -> None:
    done = json.loads((smoke_store.parent / "printed.json").read_text())
    assert done["failures"] == {}
    assert [found["experiment"] for found in done["experiments"]] == [f"{name}-smoke" for name in experiment_names()]
    for found in done["experiments"]:
        (block,) = found["blocks"]
        assert not any(block["not_run"].values())
        assert all(len(entry["values"]) == 1 for entry in block["entries"])
    stems = [smoke_store / stem for found in done["experiments"] for stem in found["figures"]]
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


def test_pages_of_smoke_runs(smoke_store: Path, tmp_path: Path) -> None:
    docs = docs_folder(tmp_path)
    command = ("all", "--smoke", "--write-docs", "--out", smoke_store, "--docs", docs)
    before = {path: path.read_bytes() for path in smoke_store.rglob("*") if path.is_file()}
    gone = docs / "images/reproduction/figure9-mnist-ranks.svg"
    gone.parent.mkdir(parents=True)
    gone.write_text("of results that are no more")
    run(*command)
    assert not gone.exists()
    assert {path: path.read_bytes() for path in smoke_store.rglob("*") if path.is_file()} == before, "nothing is run"
    written = {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()}
    run(*command)
    assert {path: path.read_bytes() for path in docs.rglob("*") if path.is_file()} == written
    page, study = ((docs / name).read_text() for name in ("reproduction.md", "adversarial-training.md"))
    assert "A trial, whose figures mean nothing" in page
    assert "\nreproduction\nadversarial-training\n" in (docs / "results.md").read_text()
    for text in (page, study):
        assert str(tmp_path) not in text
        for target in re.findall(r"\]\((images/[^)]+)\)", text):
            assert (docs / target).stat().st_size > 100
    assert {path.name.split(".")[0].rsplit("-", 1)[1] for path in docs.glob("images/reproduction/*")} == set(ANALYSES)
    # Each accuracy of a cell stands in the row and column where it belongs.
    experiment, selection = smoke(load_experiment("table1")), Selection(examples=10, epochs=1)
    section = page.split("### table1-smoke")[1].split("\n### ")[0]
    accuracies = [_accuracies(smoke_store, cell) for cell in selection.cells(experiment)]
    for row in accuracies[0]:
        figures = " | ".join(f"{found[row]:.1f} (1 seed)" for found in accuracies)
        assert re.search(rf"^\| {row}(, worst case \S+)? \| {re.escape(figures)} \|$", section, re.M)
    experiment = smoke(load_experiment("adversarial"))
    choices = choose(Store(smoke_store), selection.tuning_cells(experiment))
    for cell in selection.cells(experiment, choices):
        found = _accuracies(smoke_store, cell)
        line = next(line for line in study.splitlines() if line.startswith(f"| {cell.column} | 0 |"))
        assert [float(number) for number in re.findall(r"(\d+\.\d) \(1 seed\)", line)][:3] == list(found.values())
        audit = json.loads((smoke_store / "cells" / cell.hash / "result.json").read_text())["audit"]
        assert line.endswith(f"| {audit['verdict']} (1 of 1) |")


def test_the_other_pages_hear_of_the_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the README would say that it is not run beside a page that has its figures."""
    for write in ("write_adversarial", "write_reproduction"):
        monkeypatch.setattr(tables, write, lambda *_, write=write: [Path(write)])
    assert run("adversarial", "--write-docs", "--out", tmp_path) == "write_adversarial\nwrite_reproduction\n"


def _accuracies(store: Path, cell: Cell) -> dict[str, float]:
    """By row, in percent, from the file of a cell."""
    result = json.loads((store / "cells" / cell.hash / "result.json").read_text())
    correct = {entry["attack"]: entry["correct"] for entry in result["attacks"]}
    return {
        "clean": 100 * result["clean"] / result["n"],
        **{attack.name: 100 * correct[attack.text] / result["n"] for attack in cell.attacks},
    }


def test_figures_that_mean_nothing_stay_away_from_results_and_pages(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(small, "--smoke", "--jobs", "1")
    assert len(list(Path("runs/reproduce-smoke/cells").iterdir())) == 2
    assert not Path("results").exists()
    docs_folder(tmp_path)
    done = CliRunner().invoke(app, ["reproduce", "all", "--smoke", "--write-docs"])
    assert str(done.exception).startswith("Expected --smoke --write-docs with --docs FOLDER")


def test_refusals(small: Path, options: list[str | Path]) -> None:
    for arguments, sentence in (
        (("table9",), "Expected `name` to be one of adversarial, augmentation, cw-space"),
        ((small, "--datasets", "mnist"), "Expected `datasets` to be among those of small (digits), but got 'mnist'."),
        ((small, "--losses", "gce"), "Expected `losses` to be among those of small (ce, pc-lc), but got 'gce'."),
        (
            ("table2", "figure1", "--datasets", "kmnist"),
            "Expected `datasets` to be among those of table2, figure1 (mni",
        ),
        (("all", "--losses", "pclc"), "Expected `losses` to be among those of adversarial, augmentation, cw-space"),
        ((small, "--variant", "ours"), "Expected `variant` to be one of paper, authors, but got 'ours'."),
        ((small, "--seeds", "0"), "Expected `seeds` to be at least 1, but got 0."),
        ((small, "--examples", "0"), "Expected `examples` to be at least 1, but got 0."),
        ((small, "--smoke", "--seeds", "1"), "Expected --smoke without data sets, losses, seeds, examples and epochs"),
        ((small, "--smoke", "--epochs", "0"), "Expected --smoke without data sets, losses, seeds, examples and epochs"),
        (("table1", "--write-docs", "--epochs", "0"), "Expected --write-docs without a selection"),
        (("table1", "--write-docs", "--seeds", "1"), "Expected --write-docs without a selection"),
        ((small, "--write-docs"), "Expected --write-docs with an experiment of the package, or all, but got"),
        (("table1", "--write-docs", "--docs", "nowhere"), "Expected `docs` to be a folder with reproduction.md"),
        ((small, "--engine", "slurm"), "Expected `engine` to be one of local, ray, but got 'slurm'."),
    ):
        done = CliRunner().invoke(app, ["reproduce", *map(str, [*options[-2:], *arguments]), "--device", "cpu"])
        assert isinstance(done.exception, ValueError | FileNotFoundError)
        assert str(done.exception).startswith(sentence)


def test_experiments_are_told_apart_by_their_names(small: Path, tmp_path: Path) -> None:
    """Tables in a store, and the settings that are chosen, go by name."""
    other = tmp_path / "other" / "small.toml"
    other.parent.mkdir()
    table1 = small.with_name("table1.toml")
    for copy in (other, table1):
        copy.write_text(small.read_text())
    for files, sentence in (
        ((small, other), "Expected files with names of their own, but got 2 experiments named 'small'."),
        ((table1,), f"Expected {table1} to have a name of its own, but table1 is one of the package."),
    ):
        done = CliRunner().invoke(app, ["reproduce", *map(str, files), "--plan", "--device", "cpu"])
        assert str(done.exception) == sentence


def test_a_cell_that_fails_is_said(small: Path, options: list[str | Path]) -> None:
    options = ["--examples", "999", *options[2:]]
    done = CliRunner().invoke(app, ["reproduce", str(small), *map(str, options), "--device", "cpu"])
    assert done.exit_code == 1
    assert "pclc: 4 cells failed: ValueError: Expected `examples` to be at most 360" in done.stderr
    assert "not run" in done.stdout


def test_what_does_not_end_in_time_is_left(small: Path, options: list[str | Path]) -> None:
    for hours, said in (("0", True), ("1", False)):
        arguments = ["reproduce", str(small), *map(str, options), "--device", "cpu", "--hours", hours]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0
        assert ("pclc: 4 of 4 cells are left, ~" in done.stderr) is said


def test_models_of_settings_are_kept_until_one_is_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut off while settings are tried, the model of the best one must still be there another time."""
    study, selection, grids = load_experiment("adversarial"), Selection(columns=("ce", "trades")), list[set[str]]()
    tried = selection.tuning_cells(study)
    fill(Store(tmp_path), tried[:-1], lambda cell: {"clean": 70.0, "tuning": 40.0})
    monkeypatch.setattr(tables, "run_grid", lambda cells, _: grids.append({cell.column for cell in cells}) or {})
    tables.run([study], selection, GridSettings(tmp_path, EXECUTION, weights=False))
    assert grids == [{"ce", "trades"}, {"ce"}], "of those in the second weights go"


def test_several_experiments(tmp_path: Path) -> None:
    options = ("--seeds", "1", "--losses", "ce", "--plan", "--json", "--out", tmp_path)
    plan = json.loads(run("table2", "figure3", "table2", "--datasets", "mnist", *options))
    assert [row["experiment"] for row in plan["cells"]] == ["table2", "figure3"]


def test_a_warning_of_many_cells_is_printed_once(tmp_path: Path) -> None:
    fill(Store(tmp_path), Selection(("mnist",), seeds=3).cells(load_experiment("table1")), lambda _: {"clean": 99.0})
    text = run("table1", "--datasets", "mnist", "--seeds", "3", "--out", tmp_path)
    assert text.count("something was seen") == 1
    assert "Warning in 6 cells (mnist lenet5 ce, mnist lenet5 pc-lc): something was seen" in text


def test_all_and_one_of_ones_own(small: Path, tmp_path: Path) -> None:
    plan = json.loads(run("all", small, "table1", "--losses", "ce", "--plan", "--json", "--out", tmp_path))
    names = dict.fromkeys(row["experiment"] for row in plan["cells"])
    assert list(names) == [*(name for name in experiment_names() if name in names), "small"]


def test_all_takes_what_an_experiment_has(tmp_path: Path) -> None:
    plan = json.loads(
        run("all", "--datasets", "mnist", "--seeds", "1", "--losses", "ce", "--plan", "--json", "--out", tmp_path)
    )
    places = {(row["experiment"], row["data set"], row["column"]) for row in plan["cells"]}
    assert ("table1", "mnist", "ce") in places
    assert ("figure3", "mnist", "ce") in places
    assert {row["data set"] for row in plan["cells"]} == {"mnist"}, "settings of another data set are not tried either"
