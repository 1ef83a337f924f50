"""The result as files: JSON that its schema describes, examples as safetensors."""

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch
from json_schema import problems
from safetensors import safe_open

import pclc
from pclc.attacks import FGSM, PGD
from pclc.evaluation import load_evaluation
from pclc.evaluation.document import from_document, to_document

SCHEMA = json.loads(files("pclc.evaluation").joinpath("schema.json").read_text())


@pytest.fixture
def report(case) -> pclc.Evaluation:
    attacks = [FGSM(eps=0.1), PGD(eps=0.1, alpha=0.05, steps=3, norm="L2", stop="never"), lambda model, x, y: x + 0.0]
    index = torch.arange(40).flip(0)
    return pclc.evaluate(case.model, case.x[:40], case.y[:40], attacks, index=index, seed=4)


def test_the_document_fits_its_schema(report: pclc.Evaluation) -> None:
    document = json.loads(json.dumps(to_document(report), allow_nan=False))
    assert problems(document, SCHEMA) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("n",), 0),
        (("attacks", 0, "robust"), "012"),
        (("attacks", 0, "norm"), "L1"),
        (("attacks", 0, "accuracy", "low"), -0.1),
        (("conditions", "eight_bit"), 1),
        (("clean", "more"), 1),
        (("interval", "confidence"), 0.9),
    ],
)
def test_the_schema_refuses(report: pclc.Evaluation, path: tuple[str | int, ...], value: object) -> None:
    document: Any = copy.deepcopy(to_document(report))
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert problems(document, SCHEMA)


def test_there_and_back(report: pclc.Evaluation, tmp_path: Path) -> None:
    pclc.evaluation.save_evaluation(report, tmp_path / "deep" / "folder")
    back = load_evaluation(tmp_path / "deep" / "folder")
    assert to_document(back) == to_document(report)
    assert torch.equal(back.index, report.index)
    assert back.robust_accuracy == report.robust_accuracy
    assert pclc.evaluation.compare(back, report).only_first == 0


def test_figures_have_their_conditions(report: pclc.Evaluation, case) -> None:
    document = to_document(report)
    about = document["conditions"]
    assert about["versions"].keys() == {"pclc", "torch", "python"}
    assert about["model_hash"] == pclc.evaluation.model_hash(case.model)
    assert about["data_hash"] == pclc.evaluation.tensor_hash(case.x[:40], case.y[:40], report.index)
    assert (about["device"], about["precision"], about["processes"]) == ("cpu", "fp32", 1)
    worst = {(entry["norm"], entry["eps"]): entry["accuracy"]["correct"] for entry in document["worst_case"]}
    assert worst.keys() == {("Linf", 0.1), ("L2", 0.1), (None, None)}
    assert worst[None, None] == min(worst.values())
    sentence = report.sentence()
    for word in ("40 examples", "Clopper-Pearson", "seed 4", "cpu", "fp32", about["model_hash"], about["config_hash"]):
        assert word in sentence
    other = pclc.evaluate(case.model, case.x[:40], case.y[:40], [FGSM(eps=0.1)], seed=4)
    assert other.conditions.config_hash != about["config_hash"]


def test_the_hash_of_a_model_sees_all_that_computes() -> None:
    plain = pclc.create_model("lenet8")
    normalized = pclc.create_model("lenet8", normalize=([0.5], [0.5]))
    other = pclc.create_model("lenet8", normalize=([0.5], [0.25]))
    for model in (normalized, other):
        model.model.load_state_dict(plain.state_dict())
    assert len({pclc.evaluation.model_hash(model) for model in (plain, normalized, other)}) == 3
    assert pclc.evaluation.model_hash(torch.nn.DataParallel(plain)) == pclc.evaluation.model_hash(plain)
    assert pclc.evaluation.model_hash(lambda x: x) is None


def test_what_is_no_evaluation_is_refused(report: pclc.Evaluation, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Expected an evaluation in"):
        load_evaluation(tmp_path)
    (tmp_path / "evaluation.json").write_text("{")
    with pytest.raises(ValueError, match=r"to be JSON"):
        load_evaluation(tmp_path)
    with pytest.raises(ValueError, match=r"pclc-evaluation, version 1"):
        from_document({"format": "other"})
    document = to_document(report)
    flags = document["attacks"][0]["robust"]
    document["attacks"][0]["robust"] = "10"[int(flags[0])] + flags[1:]
    with pytest.raises(ValueError, match=r"Expected the counts that the examples give"):
        from_document(document)
    document["clean"]["correct"] = document["clean"]["correct"][1:]
    with pytest.raises(ValueError, match=r"Expected 40 characters 0 or 1, but got 39"):
        from_document(document)
    del document["clean"]
    with pytest.raises(ValueError, match=r"lacks something: 'clean'"):
        from_document(document)


@pytest.mark.parametrize("eight_bit", [False, True])
def test_examples_as_safetensors(case, tmp_path: Path, eight_bit: bool) -> None:
    report = pclc.evaluate(
        case.model, case.x, case.y, [FGSM(eps=0.1)], out=tmp_path, keep_examples=True, eight_bit=eight_bit
    )
    with safe_open(tmp_path / "adversarial-0.safetensors", "pt") as content:
        about = json.loads(content.metadata()["pclc"])
        x_adv, fooled, y = (content.get_tensor(name) for name in ("x_adv", "fooled", "y"))
    assert x_adv.dtype == (torch.uint8 if eight_bit else torch.float32)
    assert about["attack"] == "fgsm(eps=0.1)"
    assert about["conditions"]["model_hash"] == report.conditions.model_hash
    images = x_adv.float() / 255 if eight_bit else x_adv
    with torch.no_grad():
        assert torch.equal(case.model(images).argmax(1) != y, fooled.bool())


def test_examples_go_with_their_evaluation(case, tmp_path: Path) -> None:
    """Their number is that of an attack in the JSON, so that those of another evaluation would be taken for others."""
    (tmp_path / "adversarial-mine.safetensors").write_bytes(b"of somebody else")
    two = [FGSM(eps=0.1), FGSM(eps=0.2)]
    pclc.evaluate(case.model, case.x, case.y, two, out=tmp_path, keep_examples=True)
    pclc.evaluate(case.model, case.x, case.y, two, out=tmp_path)
    names = {"adversarial-mine.safetensors", "adversarial-0.safetensors", "adversarial-1.safetensors"}
    assert {file.name for file in tmp_path.glob("adversarial-*")} == names
    with pytest.warns(pclc.evaluation.SetupWarning, match="no longer in it"):
        pclc.evaluate(case.model, case.x, case.y, two[1:], out=tmp_path)
    assert {file.name for file in tmp_path.glob("adversarial-*")} == {"adversarial-mine.safetensors"}
