"""Grids: whatever happens to them, they end with the results of an undisturbed one."""

import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch
from small_grid import EXECUTION, outcome

import pclc
from pclc.experiments import runner, trained
from pclc.experiments.code import code_hash, source_hash
from pclc.experiments.engines import open_engine
from pclc.experiments.experiment import Cell, Training, load_experiment
from pclc.experiments.locks import _is_alive, _owner
from pclc.experiments.runner import GridSettings, run_grid
from pclc.experiments.store import DamagedWarning, Store
from pclc.experiments.trained import trained_model, warm_up_of
from pclc.experiments.work import Job
from pclc.training import adversarial_preset, paper_config

Settings = Callable[..., GridSettings]


def fork(target: Callable[..., Any], *arguments: Any) -> multiprocessing.process.BaseProcess:
    process = multiprocessing.get_context("fork").Process(target=target, args=arguments)
    process.start()
    return process


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.002)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[list[Cell]], list[Any]]:
    """What an undisturbed grid gives."""
    store = tmp_path_factory.mktemp("whole")

    def run(cells: list[Cell]) -> list[Any]:
        assert run_grid(cells, GridSettings(store, EXECUTION)) == {}
        return outcome(store, cells)

    return run


def log_trainings(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Note each training that is begun, by whichever process."""
    real = trained.train

    def noted(model: Any, data: Any, config: Any, *, out: Path, **arguments: Any) -> Any:
        with file.open("a") as log:
            log.write(f"{out.name}\n")
        return real(model, data, config, out=out, **arguments)

    monkeypatch.setattr(trained, "train", noted)


def count_epochs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Note the epochs that are computed from now on."""
    epochs: list[int] = []
    append = pclc.RunDirectory.append_metrics

    def noted(self: pclc.RunDirectory, entry: dict[str, Any]) -> None:
        epochs.append(entry["epoch"])
        append(self, entry)

    monkeypatch.setattr(pclc.RunDirectory, "append_metrics", noted)
    return epochs


def test_a_grid_runs_once(
    cells: list[Cell], settings: Settings, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_trainings(monkeypatch, tmp_path / "log")
    run_grid(cells, settings())
    begun = Counter((tmp_path / "log").read_text().split())
    assert outcome(settings().store, cells) == whole(cells)
    # Two seeds: a first phase, the rest of ce (which is the substitute too) and the rest of pc-lc.
    assert set(begun.values()) == {1}
    assert len(begun) == 2 * 3
    document = Store(settings().store).details(cells[2], "evaluation")
    texts = [attack["attack"] for attack in document["attacks"]]
    assert texts[2] == 'transfer(fgsm(eps=0.1, stop="never"), substitute=Classifier, stop="never")'
    monkeypatch.setattr(trained, "train", None)
    assert run_grid(cells, settings()) == {}
    assert Store(settings().store).load(cells[0])["n"] == 40  # type: ignore[index]


def test_a_killed_grid_goes_on(cells: list[Cell], settings: Settings, whole: Any) -> None:
    """Killed in the middle of a training, then of an evaluation, from outside and without a chance to tidy up."""
    one = settings("killed")
    store = Store(one.store)
    folder = store.model_folder(cells[0].training)
    marks: list[Callable[[], object]] = [
        lambda: (store.model_folder(warm_up_of(cells[0].training) or cells[0].training) / "metrics.jsonl").exists(),
        lambda: list(folder.glob("attacks-test-40/evaluation/*.safetensors")),
    ]
    for mark in marks:
        process = fork(run_grid, cells, one)
        wait_for(mark)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "killed before it was finished"
        assert store.load(cells[-1]) is None
    assert list(one.store.glob("locks/*.lock")), "it had no chance to give its locks back"
    assert run_grid(cells, one) == {}
    assert outcome(one.store, cells) == whole(cells)
    assert not list(one.store.glob("locks/*.lock"))


def test_a_training_goes_on_at_its_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training("digits", "lenet8", paper_config("digits", loss="pc-lc", epochs=3, warm_up_epochs=1))
    expected = trained_model(Store(tmp_path / "a"), training, EXECUTION).model
    store = Store(tmp_path / "b")
    real = trained.train

    def stopped(*arguments: Any, **named: Any) -> Any:
        """Killed after the second epoch of the second phase, having written a checkpoint."""
        if named["out"] == store.model_folder(training):
            append = pclc.RunDirectory.append_metrics

            def last(self: pclc.RunDirectory, entry: dict[str, Any]) -> None:
                append(self, entry)
                if entry["epoch"] == 3:
                    raise KeyboardInterrupt

            monkeypatch.setattr(pclc.RunDirectory, "append_metrics", last)
            named["checkpoint_seconds"] = 0.0
        return real(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(trained, "train", stopped)
        with pytest.raises(KeyboardInterrupt):
            trained_model(store, training, EXECUTION)
    monkeypatch.undo()
    checkpoint = pclc.RunDirectory(store.model_folder(training)).load_checkpoint()
    assert checkpoint is not None
    assert len(checkpoint["history"]) == 2, "one epoch of the first phase, one of the second"
    epochs = count_epochs(monkeypatch)
    found = trained_model(store, training, EXECUTION).model
    assert epochs == [3, 4]
    for a, b in zip(expected.state_dict().values(), found.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_two_processes_share_a_grid(
    cells: list[Cell], settings: Settings, whole: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log_trainings(monkeypatch, tmp_path / "log")
    shared = settings("shared")
    processes = [fork(run_grid, cells, shared), fork(run_grid, list(reversed(cells)), shared)]
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert outcome(shared.store, cells) == whole(cells)
    assert set(Counter((tmp_path / "log").read_text().split()).values()) == {1}, "nothing was trained twice"


@pytest.mark.parametrize("file", ["result.json", "evaluation.json.gz", "analyses.json.gz"])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_damaged_cell_is_noticed_and_redone(
    cells: list[Cell], settings: Settings, whole: Any, file: str, damage: str
) -> None:
    one = settings()
    store = Store(one.store)
    run_grid(cells[:1], one)
    path = store.cell_folder(cells[0]) / file
    content = path.read_bytes()
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(content[: len(content) // 2] if damage == "cut" else content.replace(content[20:21], b"7", 1))
    if (file, damage) == ("result.json", "gone"):
        assert store.load(cells[0]) is None  # a cell that has not been computed looks the same
    else:
        with pytest.warns(DamagedWarning, match=r"is damaged and will be computed again: .*json"):
            assert store.load(cells[0]) is None
        with pytest.warns(DamagedWarning):
            assert run_grid(cells[:1], one) == {}
    run_grid(cells[:1], one)
    assert outcome(one.store, cells[:1]) == whole(cells)[:1]


def test_a_figure_changed_by_hand_is_noticed(cells: list[Cell], settings: Settings) -> None:
    store = Store(settings().store)
    run_grid(cells[:1], settings())
    path = store.cell_folder(cells[0]) / "result.json"
    path.write_text(path.read_text().replace('"n": 40', '"n": 41'))
    with pytest.warns(DamagedWarning, match=r"result.json has changed"):
        assert store.load(cells[0]) is None


def test_a_damaged_model_is_trained_again(cells: list[Cell], settings: Settings) -> None:
    store, training = Store(settings().store), cells[0].training
    before = trained_model(store, training, EXECUTION).model.state_dict()
    weights = store.model_folder(training) / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-5] ^= 1
    weights.write_bytes(content)
    with pytest.warns(DamagedWarning, match=r"will be trained again: model.safetensors has changed"):
        after = trained_model(store, training, EXECUTION).model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_processes_give_the_same(cells: list[Cell], settings: Settings, whole: Any) -> None:
    pool = settings("pool", jobs=2)
    assert run_grid(cells, pool) == {}
    assert outcome(pool.store, cells) == whole(cells)


def test_ray_gives_the_same(cells: list[Cell], settings: Settings, whole: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also of a cell that fails; and on this machine, whatever cluster the environment names."""
    pytest.importorskip("ray", reason="needs the extra ray")
    monkeypatch.setenv("RAY_ADDRESS", "nowhere")
    cluster, wrong = settings("ray", engine="ray"), replace(cells[0], examples=100_000)
    failures = run_grid([wrong, *cells], cluster)
    assert failures == run_grid([wrong], settings("local"))
    assert list(failures) == [wrong.hash]
    assert outcome(cluster.store, cells) == whole(cells)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "nowhere"])
def test_a_wrong_address_of_a_cluster_is_said_at_once(cells: list[Cell], settings: Settings, address: str) -> None:
    pytest.importorskip("ray", reason="needs the extra ray")
    with pytest.raises(ValueError, match=f"HOST:PORT of a Ray cluster that runs, but got '{address}': "):
        run_grid(cells[:1], settings(engine="ray", address=address))


def test_a_worker_leaves_with_the_process_that_started_it(cells: list[Cell], settings: Settings) -> None:
    process = fork(run_grid, cells, settings("orphans", jobs=2))
    locks = settings("orphans").store / "locks"
    wait_for(lambda: list(locks.glob("cell-*.lock")))
    wait_for(lambda: _owner(next(locks.glob("cell-*.lock"), locks)))
    worker = _owner(next(locks.glob("cell-*.lock")))["pid"]
    assert worker != process.pid
    process.kill()
    process.join()
    wait_for(lambda: not _is_alive(worker), 30)


def test_a_failure_does_not_stop_the_others(cells: list[Cell], settings: Settings) -> None:
    wrong = replace(cells[0], examples=100_000)
    failures = run_grid([wrong, cells[1]], settings())
    assert list(failures) == [wrong.hash]
    assert failures[wrong.hash].startswith("ValueError: Expected `examples` to be at most 360")
    assert Store(settings().store).load(cells[1]) is not None


def test_a_worker_that_is_killed_does_not_stop_the_others(cells: list[Cell], settings: Settings) -> None:
    """As the system does where memory runs out."""
    store = settings("killed").store
    locks, job = store / "locks", Job(cells[0], store, EXECUTION)
    with open_engine("local", 2) as workers:
        first = workers.submit(job)
        wait_for(lambda: _owner(next(locks.glob("cell-*.lock"), locks)))
        os.kill(_owner(next(locks.glob("cell-*.lock")))["pid"], signal.SIGKILL)
        assert isinstance(first.exception(), BrokenProcessPool)
        wrong = replace(job, threads=0)  # which is told before anything is done
        assert type(workers.submit(wrong).exception()) is RuntimeError


def test_without_weights_little_is_left(cells: list[Cell], settings: Settings) -> None:
    one = settings()
    assert run_grid(cells[:1], replace(one, weights=False)) == {}
    left = [path for path in one.store.rglob("*") if path.is_file()]
    assert not [path for path in left if path.suffix == ".safetensors"]
    assert {path.name for path in (one.store / "models" / cells[0].training.hash).iterdir()} == {
        "config.json",
        "metrics.jsonl",
        "model.json",
        "training.json",
    }
    assert sum(path.stat().st_size for path in left) < 20_000
    expected = outcome(one.store, cells[:1])
    assert run_grid(cells, one) == {}, "what is needed again is trained again"
    assert outcome(one.store, cells[:1]) == expected


def test_weights_go_as_soon_as_nothing_needs_them(
    cells: list[Cell], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(settings().store)
    seen = []
    real = runner._job

    def noted(cell: Cell, settings: GridSettings) -> Any:
        seen.append([store.is_trained(other.training) for other in cells])
        return real(cell, settings)

    monkeypatch.setattr(runner, "_job", noted)
    assert run_grid(cells, settings(weights=False)) == {}
    # The models of ce are the substitutes of pc-lc at the same seed; the second seed begins when the first is done.
    assert seen == [[False] * 4, [True, False, False, False], [False] * 4, [False, True, False, False]]


def test_a_failure_does_not_cost_the_model(cells: list[Cell], settings: Settings) -> None:
    store, wrong = Store(settings().store), replace(cells[0], examples=100_000)
    for both in ([wrong, cells[0]], [cells[0], wrong]):
        assert list(run_grid(both, settings(weights=False))) == [wrong.hash]
        assert store.is_trained(wrong.training), "it is not trained again when the cell is tried again"


def test_cells_of_a_model_come_together() -> None:
    names = ("table1", "table2", "table3", "table5", "figure3", "masking", "schedules")
    cells = [
        cell for name in names for cell in load_experiment(name).cells(["mnist", "kmnist"][: 1 + (name[-1] == "1")])
    ]
    ordered = runner.in_order(cells)
    assert Counter(cell.hash for cell in ordered) == Counter(cell.hash for cell in cells)
    places = [[cell.training.dataset, cell.training.config.seed] for cell in ordered]
    assert places == sorted(places, key=lambda place: (place[0] != "mnist", place[1])), "whole seeds come first"
    runs = [model for model, _ in groupby(cell.training.hash for cell in ordered)]
    assert len(runs) == len(set(runs))
    assert len(runs) < len(ordered), "several experiments ask for the same model"


def test_a_study_goes_panel_by_panel() -> None:
    """Cut off it has all seeds of one network, and not one seed of everything with the long run before the second."""
    study = load_experiment("adversarial")
    tried = study.tuning_cells(["ce", "trades", "ce + pc"])
    ordered = runner.in_order([*study.cells(choices={cell.column: 0 for cell in tried}), *tried])
    places = [(cell.training.model, cell.training.config.epochs, cell.training.config.seed) for cell in ordered]
    lengths = [("vgg13", 50, 5), ("preact_resnet18", 50, 3), ("preact_resnet18", 150, 1)]
    assert [place for place, _ in groupby(places)] == [
        (model, epochs, seed) for model, epochs, seeds in lengths for seed in range(seeds)
    ]


def test_a_cell_may_ask_for_a_precision_of_its_own(cells: list[Cell], settings: Settings) -> None:
    one, other = settings(), replace(cells[0], precision="bf16")
    assert run_grid([cells[0], other], one) == {}
    results = [Store(one.store).load(cell) for cell in (cells[0], other)]
    assert [result["conditions"]["precision"] for result in results if result] == ["fp32", "bf16"]
    assert [result["training"]["precision"] for result in results if result] == ["fp32", "fp32"], "one training"
    assert not any("another evaluation" in text for result in results if result for text in result["warnings"])


def test_a_result_knows_its_code_and_not_its_folder(
    cells: list[Cell], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = settings()
    run_grid(cells[:1], one)
    store = Store(one.store)
    result = store.load(cells[0])
    assert result is not None
    assert (result["code"], result["training"]["precision"]) == (code_hash(), EXECUTION.resolved_precision)
    (store.cell_folder(cells[0]) / "result.json").unlink()
    monkeypatch.setattr("pclc.evaluation.measure.__version__", "0.0.0")
    run_grid(cells[:1], one)
    (told,) = (text for text in store.load(cells[0])["warnings"] if "another evaluation" in text)  # type: ignore[index]
    assert told.startswith(f"models/{cells[0].training.hash}/")


def test_the_hash_of_the_code_is_of_all_of_it(tmp_path: Path) -> None:
    for place, text in (("a/x.py", "1"), ("a/b/y.py", "2"), ("a/notes.txt", "3")):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    before = source_hash([tmp_path / "a"])
    (tmp_path / "a/notes.txt").write_text("4")
    assert source_hash([tmp_path / "a"]) == before
    (tmp_path / "a/b/y.py").write_text("5")
    assert source_hash([tmp_path / "a"]) != before


def test_weights_stay_while_somebody_works(cells: list[Cell], settings: Settings) -> None:
    one = settings()
    run_grid(cells[:1], one)
    with Store(one.store).lock(cells[0].training):
        run_grid(cells[:1], replace(one, weights=False))
        assert Store(one.store).is_trained(cells[0].training)


@pytest.mark.parametrize(("loss", "adversarial"), [("ce", False), ("pc-lc", False), ("pc-lc", True)])
def test_a_shared_first_phase_gives_the_same_bits(
    tmp_path: Path, loss: str, adversarial: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = adversarial_preset("paper-grey") if adversarial else None
    config = paper_config("digits", loss=loss, epochs=1, warm_up_epochs=2, seed=3, adversarial=recipe, logit_weight=0.1)
    training = Training("digits", "lenet8", config)
    store = Store(tmp_path)
    first = warm_up_of(training)
    assert first is not None
    trained_model(store, first, EXECUTION)
    epochs = count_epochs(monkeypatch)
    found = trained_model(store, training, EXECUTION)
    assert epochs == [3], "those of the first phase are not computed again"
    monkeypatch.undo()
    torch.manual_seed(3)
    expected = pclc.train(pclc.create_model("lenet8"), pclc.load_dataset("digits"), config, execution=EXECUTION)
    for a, b in zip(expected.model.state_dict().values(), found.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)
    history = pclc.RunDirectory(store.model_folder(training)).metrics
    assert [entry["loss"] for entry in history] == [entry["loss"] for entry in expected.history]
    assert found.about["epochs"] == 3


def test_which_first_phases_are_shared() -> None:
    def first(**changes: Any) -> Training | None:
        return warm_up_of(Training("digits", "lenet8", paper_config("digits", **changes)))

    assert first(loss="ce") == first(loss="pc-lc") == first(loss="pc-lc", margin=0.5) == first(loss="pc")
    assert first(loss="ce") != first(loss="ce", seed=1)
    assert first(loss="gce") is None
    assert first(loss="ce", warm_up_epochs=0) is None
    assert first(loss="pc-lc", ema=0.9) is None, "averages go on from phase to phase"
    assert first(loss="pc-lc", validation=0.1) is None


def test_a_run_begun_with_another_precision_begins_anew(cells: list[Cell], tmp_path: Path) -> None:
    store, training = Store(tmp_path), cells[0].training
    folder = store.model_folder(training)
    trained_model(store, training, EXECUTION)
    for name in ("training.json", "checksums.json", "model.safetensors"):
        (folder / name).unlink()
    text = (folder / "config.json").read_text()
    (folder / "config.json").write_text(text.replace('"fp32"', '"bf16"'))
    pclc.RunDirectory(folder).save_checkpoint({"history": []})
    assert trained_model(store, training, EXECUTION).about["epochs"] == 2


def test_the_engine_is_named(settings: Settings, cells: list[Cell]) -> None:
    for changes, sentence in (
        ({"engine": "slurm"}, "Expected `engine` to be one of local, ray, but got 'slurm'."),
        ({"jobs": 0}, "Expected `jobs` to be at least 1, but got 0."),
        ({"address": "auto"}, "Expected `address` to be used with engine \"ray\", but got 'auto' for 'local'."),
    ):
        with pytest.raises(ValueError, match=sentence):
            run_grid(cells, settings(**changes))


def test_no_cell_is_begun_that_would_end_too_late(cells: list[Cell], settings: Settings) -> None:
    store = Store(settings().store)
    run_grid(cells[:1], settings())
    result = store.load(cells[0])
    assert result is not None
    slow = {**result["training"], "seconds": 1e6}  # of two epochs, and it is its own substitute
    made = {**result, "training": slow, "substitute": slow}
    store.save(cells[0], made, {name: store.details(cells[0], name) for name in ("evaluation", "analyses")})

    def run(seconds: float) -> list[bool]:
        assert run_grid(cells, settings(weights=False, until=time.monotonic() + seconds)) == {}
        return [store.load(cell) is not None for cell in cells]

    assert run(0.4e6) == [True, False, False, False]
    assert store.is_trained(cells[0].training), "what is left needs it"
    # PC-LC of that seed goes on from the first phase. When it is done, an epoch is known to be shorter.
    assert run(0.6e6) == [True] * 4
    assert not store.is_trained(cells[0].training)
