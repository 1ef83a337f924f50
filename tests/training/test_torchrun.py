"""Two processes under torchrun: the same global batch, the same result as one process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

PROGRAM = """
import sys, torch, pclc
torch.set_num_threads(1)
torch.manual_seed(0)
images = torch.randint(0, 256, (512, 1, 28, 28), dtype=torch.uint8)
labels = torch.arange(512) % 10
images[torch.arange(512), 0, labels] = 255
data = pclc.Dataset(images, labels, tuple("0123456789"), "stripes", "train")
config = pclc.TrainConfig(loss="pc-lc", warm_up_epochs=2, epochs=2, batch_size=64, lr=0.002)
pclc.train(pclc.create_model("lenet5"), data, config, out=sys.argv[1], execution=pclc.Execution(device="cpu"))
"""


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run([sys.executable, str(script), str(one)], check=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(script), str(two)], check=True)

    import pclc

    x = torch.rand(20, 1, 28, 28)
    torch.testing.assert_close(pclc.load_model(two)(x), pclc.load_model(one)(x), rtol=1e-2, atol=1e-2)
    losses = [[entry["loss"] for entry in pclc.RunDirectory(out).metrics] for out in (one, two)]
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)
