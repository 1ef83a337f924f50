"""Killed anywhere, the same command goes on, to the same bits as a run that nobody disturbed."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import sys, torch, pclc
torch.set_num_threads(1)
torch.manual_seed(0)
config = pclc.TrainConfig(loss="pc-lc", warm_up_epochs=6, epochs=6, batch_size=64)
pclc.train(pclc.create_model("lenet8"), pclc.load_dataset("digits"), config, out=sys.argv[1],
           execution=pclc.Execution(device="cpu"), checkpoint_seconds=0)
"""


def start(out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(out)])


def epochs_done(out: Path) -> int:
    file = out / "metrics.jsonl"
    return len(file.read_text().splitlines()) if file.exists() else 0


def without_times(out: Path) -> list[dict[str, object]]:
    lines = (out / "metrics.jsonl").read_text().splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "images_per_second"} for line in lines]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("undisturbed")
    assert start(out).wait() == 0
    return out


@pytest.mark.parametrize("kills", [(1,), (4, 9)], ids=["in the first phase", "twice, over the change of phase"])
def test_killed_and_resumed(undisturbed: Path, tmp_path: Path, kills: tuple[int, ...]) -> None:
    for epochs in kills:
        process = start(tmp_path)
        deadline = time.monotonic() + 60
        while epochs_done(tmp_path) < epochs and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert epochs_done(tmp_path) >= epochs
    assert not (tmp_path / "training.json").exists(), "it was killed before its end"
    assert start(tmp_path).wait() == 0
    assert without_times(tmp_path) == without_times(undisturbed)
    weights = [(folder / "model.safetensors").read_bytes() for folder in (tmp_path, undisturbed)]
    assert weights[0] == weights[1]
    assert not (tmp_path / "checkpoint.pt").exists()
