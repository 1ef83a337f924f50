"""Two processes under torchrun: the same global batch, the same result as one process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pclc

PROGRAMS = {
    "plain": """
images = torch.randint(0, 256, (512, 1, 28, 28), dtype=torch.uint8)
labels = torch.arange(512) % 10
images[torch.arange(512), 0, labels] = 255
data = pclc.Dataset(images, labels, tuple("0123456789"), "stripes", "train")
model = pclc.create_model("lenet5")
config = pclc.TrainConfig(loss="pc-lc", warm_up_epochs=2, epochs=2, batch_size=64, lr=0.002)
""",
    # the same examples are crafted
    "adversarial": """
data = pclc.load_dataset("digits").subset(torch.arange(512))
model = pclc.create_model("lenet8")
config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=2, batch_size=64, lr=0.002, ema=0.9, validation=0.25,
                          adversarial=pclc.AdversarialConfig("trades", eps=(0.05, 0.1), steps=2))
""",
}


# A CPU has no SyncBatchNorm, so that each process sees the statistics of its own part of a batch.
BATCH_NORM = """
import copy, os, sys, torch, pclc
from pathlib import Path
from pclc.training import selection
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10))
states, measure = [], selection.robust_accuracy

def seen(model, *rest):
    states.append(copy.deepcopy(model.state_dict()))
    return measure(model, *rest)

selection.robust_accuracy = seen
for validation in (0.25, 0.0):  # the best epoch, the last one
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=2, batch_size=64, ema=0.9, validation=validation,
                              adversarial=pclc.AdversarialConfig("fast", eps=0.1))
    data = pclc.load_dataset("digits").subset(torch.arange(512))
    pclc.train(model, data, config, execution=pclc.Execution(device="cpu"))
    states.append(copy.deepcopy(model.state_dict()))
torch.save(states, Path(sys.argv[1]) / f"{os.environ['RANK']}.pt")
"""


def test_processes_measure_and_end_with_the_same_model(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(BATCH_NORM)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(script), str(tmp_path)], check=True)
    lead, other = (torch.load(tmp_path / f"{rank}.pt", weights_only=True) for rank in (0, 1))
    assert len(lead) == 6, "four epochs and two ends"
    for mine, others in zip(lead, other, strict=True):
        assert all(value.equal(others[name]) for name, value in mine.items())


@pytest.mark.parametrize("kind", PROGRAMS)
def test_two_processes_train_as_one(kind: str, tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, torch, pclc\ntorch.set_num_threads(1)\ntorch.manual_seed(0)\n"
        + PROGRAMS[kind]
        + 'pclc.train(model, data, config, out=sys.argv[1], execution=pclc.Execution(device="cpu"))\n'
    )
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run([sys.executable, str(script), str(one)], check=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(script), str(two)], check=True)
    models = [pclc.load_model(out) for out in (two, one)]
    x = torch.rand(20, 1, *(28, 28) if kind == "plain" else (8, 8))
    torch.testing.assert_close(models[0](x), models[1](x), rtol=1e-2, atol=1e-2)
    metrics = [pclc.RunDirectory(out).metrics for out in (one, two)]
    for name in ("loss",) if kind == "plain" else ("loss", "validation_robust_accuracy"):
        assert [e[name] for e in metrics[1]] == pytest.approx([e[name] for e in metrics[0]], rel=1e-2)
    best = [pclc.RunDirectory(out).result.get("best_epoch") for out in (one, two)]
    assert best[0] == best[1]
