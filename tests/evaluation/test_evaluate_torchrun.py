"""Two processes under torchrun share the examples, and each has the result of one process."""

from pathlib import Path
from typing import Any

import pytest
from documents import run_by_one_and_two, without_seconds
from safetensors.torch import load_file

from pclc.evaluation import load_evaluation
from pclc.evaluation.document import to_document

PROGRAM = """
import os, sys, torch, pclc
torch.manual_seed(0)
data = pclc.load_dataset("digits", "test")
x, y = data.images[:101].float() / 255, data.labels[:101]
model = pclc.create_model("lenet8").eval()
attacks = ["pgd(eps=0.1, alpha=0.02, steps=10)", 'noise(eps=0.1, draws=2, stop="never")']
out, others = sys.argv[1:]
result = pclc.evaluate(model, x, y, attacks, eps=[0.05, 0.1], out=out, chunk=20, keep_examples=True)
pclc.evaluation.save_evaluation(result, others + os.environ.get("RANK", "0"))
"""


def document(folder: Path) -> dict[str, Any]:
    return without_seconds(to_document(load_evaluation(folder)))


@pytest.mark.filterwarnings("ignore:The clean accuracy")
def test_two_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = run_by_one_and_two(PROGRAM, tmp_path, monkeypatch)
    single, pair = document(one), document(two)
    assert pair["conditions"]["processes"] == 2
    pair["conditions"]["processes"] = 1
    assert pair == single
    assert document(tmp_path / "rank1") == document(tmp_path / "rank0"), "every process has all of the result"
    for number in range(4):
        name = f"adversarial-{number}.safetensors"
        a, b = load_file(one / name), load_file(two / name)
        assert all((a[key] == b[key]).all() for key in a)
