"""Adversarial training over two processes: the same examples crafted, the same result as one process."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

import pclc

PROGRAM = """
import sys, torch, pclc
from pclc.training import AdversarialConfig
torch.set_num_threads(1)
torch.manual_seed(0)
data = pclc.load_dataset("digits").subset(torch.arange(512))
config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=2, batch_size=64, lr=0.002, ema=0.9, validation=0.25,
                          adversarial=AdversarialConfig("trades", eps=(0.05, 0.1), steps=2))
pclc.train(pclc.create_model("lenet8"), data, config, out=sys.argv[1], execution=pclc.Execution(device="cpu"))
"""


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    one, two = tmp_path / "one", tmp_path / "two"
    subprocess.run([sys.executable, str(script), str(one)], check=True)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    subprocess.run([*torchrun, str(script), str(two)], check=True)
    x = torch.rand(20, 1, 8, 8)
    torch.testing.assert_close(pclc.load_model(two)(x), pclc.load_model(one)(x), rtol=1e-2, atol=1e-2)
    metrics = [pclc.RunDirectory(out).metrics for out in (one, two)]
    for name in ("loss", "validation_robust_accuracy"):
        assert [e[name] for e in metrics[1]] == pytest.approx([e[name] for e in metrics[0]], rel=1e-2)
    assert pclc.RunDirectory(one).result["best_epoch"] == pclc.RunDirectory(two).result["best_epoch"]
