"""Two processes under torchrun share the examples of an audit, and each has the result of one process."""

import json
from pathlib import Path
from typing import Any

import pytest
from documents import run_by_one_and_two, without_seconds
from safetensors.torch import load_file

PROGRAM = """
import os, sys, torch, pclc
from pclc.bench.zoo_models import Noisy
from pclc.evaluation.audit import save_audit
x = torch.rand(61, 3, generator=torch.Generator().manual_seed(1))
model = torch.nn.Linear(3, 3, bias=False)
model.weight.data = 1e4 * torch.eye(3)
out, others = sys.argv[1:]
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")  # for two calls
result = pclc.audit(model.eval(), x, x.argmax(1), eps=0.1, mode="quick", claim=0.2, out=out)
save_audit(result, others + os.environ.get("RANK", "0"))
if "RANK" in os.environ:
    try:
        pclc.audit(Noisy(model, sigma=0.1).eval(), x, x.argmax(1), eps=0.1, mode="quick")
    except ValueError as error:
        open(others + os.environ["RANK"] + "/sentence", "w").write(str(error))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()  # threads of gloo would end a process that leaves before them
"""


def document(folder: Path) -> dict[str, Any]:
    return without_seconds(json.loads((folder / "audit.json").read_text()))


def test_two_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = run_by_one_and_two(PROGRAM, tmp_path, monkeypatch)
    single, pair = document(one), document(two)
    assert pair["conditions"].pop("processes") == 2
    assert single["conditions"].pop("processes") == 1
    assert pair == single
    assert len(single["attacks"]) > 3
    assert document(tmp_path / "rank1") == document(tmp_path / "rank0"), "every process has all of the result"
    assert sorted(file.name for file in two.iterdir()) == ["audit.json", "witnesses.safetensors"]
    a, b = (load_file(folder / "witnesses.safetensors") for folder in (one, two))
    assert all((a[key] == b[key]).all() for key in a)
    for rank in "01":
        assert "Expected one process for a model that is random" in (tmp_path / f"rank{rank}" / "sentence").read_text()
