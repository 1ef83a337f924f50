"""Killed anywhere, the same command goes on, to the same bits as a run that nobody disturbed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import pclc
from pclc.training import (
    AdversarialConfig,
    RunDirectory,
    TrainResult,
    adversarial_config,
    adversarial_preset,
    selection,
)

CONFIGS = {
    "plain": 'loss="pc-lc", warm_up_epochs=6, epochs=6, batch_size=64',
    # averaged weights, a best epoch, another optimizer
    "adversarial": """loss="pc-lc", warm_up_epochs=2, epochs=4, batch_size=64, lr=0.05, optimizer="sgd",
        schedule="cosine", ema=0.9, validation=0.1,
        adversarial=pclc.AdversarialConfig("mix", eps=(0.05, 0.15), steps=2)""",
}
PROGRAM = """
import sys, torch, pclc
torch.set_num_threads(1)
torch.manual_seed(0)
config = pclc.TrainConfig({config})
pclc.train(pclc.create_model("lenet8"), pclc.load_dataset("digits"), config, out=sys.argv[1],
           execution=pclc.Execution(device="cpu"), checkpoint_seconds=0)
"""


def start(kind: str, out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM.format(config=CONFIGS[kind]), str(out)])


def epochs_done(out: Path) -> int:
    file = out / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def without_times(out: Path) -> list[dict[str, object]]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "images_per_second"} for line in lines]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in CONFIGS}
    for kind, out in folders.items():
        assert start(kind, out).wait() == 0
    return folders


@pytest.mark.parametrize(
    ("kind", "kills"),
    [("plain", (1,)), ("plain", (4, 9)), ("adversarial", (4,))],
    ids=["in the first phase", "twice, over the change of phase", "adversarial"],
)
def test_killed_and_resumed(undisturbed: dict[str, Path], tmp_path: Path, kind: str, kills: tuple[int, ...]) -> None:
    for epochs in kills:
        process = start(kind, tmp_path)
        deadline = time.monotonic() + 60
        while epochs_done(tmp_path) < epochs and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert epochs_done(tmp_path) >= epochs
    assert not (tmp_path / "training.json").exists(), "it was killed before its end"
    assert start(kind, tmp_path).wait() == 0
    assert without_times(tmp_path) == without_times(undisturbed[kind])
    weights = [(folder / "model.safetensors").read_bytes() for folder in (tmp_path, undisturbed[kind])]
    assert weights[0] == weights[1]
    assert not (tmp_path / "checkpoint.pt").exists()
    if kind == "adversarial":
        best = [RunDirectory(folder).result["best_epoch"] for folder in (tmp_path, undisturbed[kind])]
        assert best[0] == best[1] > 2


def test_a_best_epoch_before_the_kill_survives_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The weights of the best epoch are in the checkpoint: later epochs, told to be worse, do not replace them."""
    robust = iter([0.9, 0.5, 0.5, 0.5, 0.5])
    best_weights = []

    def told(model: nn.Module, *_: object) -> float:
        value = next(robust)
        if value == 0.9:
            best_weights.append({name: tensor.clone() for name, tensor in model.state_dict().items()})
        return value

    monkeypatch.setattr(selection, "robust_accuracy", told)
    original = RunDirectory.append_metrics

    def killed_in_epoch_three(self: RunDirectory, entry: dict[str, object]) -> None:
        if entry["epoch"] == 3:
            raise KeyboardInterrupt
        original(self, entry)

    config = pclc.TrainConfig(
        loss="ce", warm_up_epochs=0, epochs=4, batch_size=128, ema=0.9, validation=0.1,
        adversarial=AdversarialConfig("fast", eps=0.1),
    )  # fmt: skip

    def run() -> TrainResult:
        torch.manual_seed(0)
        return pclc.train(
            pclc.create_model("lenet8"), pclc.load_dataset("digits"), config, out=tmp_path,
            execution=pclc.Execution(device="cpu"), checkpoint_seconds=0,
        )  # fmt: skip

    monkeypatch.setattr(RunDirectory, "append_metrics", killed_in_epoch_three)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(RunDirectory, "append_metrics", original)
    result = run()
    assert result.best_epoch == 1
    assert len(result.history) == 4
    assert all(value.equal(best_weights[0][name]) for name, value in result.model.state_dict().items())


def test_a_run_of_the_preset_pc_goes_on_to_the_same_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = adversarial_preset("pc", steps=2, clean_share=0.5, kl_weight=1.0, logit_weight=0.1)
    config = adversarial_config("digits", recipe, epochs=3, validation=0.1, label_smoothing=0.1)

    def run(out: Path) -> TrainResult:
        torch.manual_seed(0)
        return pclc.train(
            pclc.create_model("lenet8"), pclc.load_dataset("digits"), config, out=out,
            execution=pclc.Execution(device="cpu"), checkpoint_seconds=0,
        )  # fmt: skip

    original = RunDirectory.append_metrics

    def killed_in_epoch_two(self: RunDirectory, entry: dict[str, object]) -> None:
        if entry["epoch"] == 2:
            raise KeyboardInterrupt
        original(self, entry)

    monkeypatch.setattr(RunDirectory, "append_metrics", killed_in_epoch_two)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "killed")
    monkeypatch.setattr(RunDirectory, "append_metrics", original)
    resumed, whole = run(tmp_path / "killed"), run(tmp_path / "whole")
    assert without_times(tmp_path / "killed") == without_times(tmp_path / "whole")
    assert all(value.equal(whole.model.state_dict()[name]) for name, value in resumed.model.state_dict().items())


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_two_at_once_in_one_folder_are_refused(tmp_path: Path) -> None:
    first = start("plain", tmp_path)
    deadline = time.monotonic() + 60
    while epochs_done(tmp_path) < 1 and time.monotonic() < deadline:
        time.sleep(0.001)
    first.send_signal(signal.SIGSTOP)
    try:
        assert start("plain", tmp_path).wait() == 1
    finally:
        first.send_signal(signal.SIGCONT)
    assert first.wait() == 0
    assert epochs_done(tmp_path) == 12


def test_a_disk_that_is_full_is_called_so(tmp_path: Path) -> None:
    """A limit on the size of files stands for it."""
    resource = pytest.importorskip("resource")
    run = RunDirectory(tmp_path)
    run.save_checkpoint({"history": []})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: '.*checkpoint\.pt'"):
            run.save_checkpoint({"history": [], "model": torch.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert run.load_checkpoint() == {"history": []}
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such locks")
def test_what_a_killed_process_had_begun_to_write_does_not_stay(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    run.begin({})
    begun = tmp_path / ".tmp-01ab23cd-checkpoint.pt"
    begun.touch()
    with run.held():
        assert not begun.exists()
