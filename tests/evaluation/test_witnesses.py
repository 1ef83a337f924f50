"""Witnesses: what holds is found to hold, and every lie is found out."""

import dataclasses
import json
import math
import warnings
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import pclc
from pclc.attacks import PGD
from pclc.bench.zoo_models import Noisy
from pclc.evaluation import (
    DataSource,
    SetupWarning,
    Verification,
    Witnesses,
    load_witnesses,
    make_witnesses,
    verify,
    witnesses_of,
)

EPS = 0.15


@pytest.fixture
def data() -> pclc.Dataset:
    return pclc.load_dataset("digits", "test")


@pytest.fixture
def witnesses(case, data) -> Witnesses:
    x_adv = PGD(eps=EPS, alpha=0.03, steps=10)(case.model, case.x, case.y)
    return make_witnesses(case.model, case.x, case.y, x_adv, norm="Linf", eps=EPS, data=DataSource.of(data))


def failed(found: Verification) -> set[str]:
    return {check.name for check in found.checks if check.holds is False}


def test_true_witnesses_hold(case, data, witnesses: Witnesses, tmp_path: Path) -> None:
    fooled = PGD(eps=EPS, alpha=0.03, steps=10).run(case.model, case.x, case.y).success
    assert witnesses.index.tolist() == fooled.nonzero().squeeze(1).tolist()
    file = tmp_path / "deep" / "w.safetensors"
    witnesses.save(file)
    found = verify(file, case.model)
    assert found.holds
    assert (found.count, failed(found)) == (len(witnesses), set())
    assert all(check.holds for check in found.checks)
    assert (found.margins > 0).all()
    assert (found.norms <= EPS + 2**-23).all()
    assert f"{len(witnesses)} of {len(witnesses)} witnesses are verified." in str(found)
    given = verify(file, case.model, data.images.float() / 255, data.labels)
    assert given.holds
    assert torch.equal(given.margins, found.margins)
    assert verify(file, case.model, data.images, data.labels.byte()).holds


def test_figures_are_those_of_a_model_in_float64(case, witnesses: Witnesses) -> None:
    twin = pclc.create_model("lenet8")
    twin.load_state_dict(case.model.state_dict())
    with torch.no_grad():
        logits = twin.double().eval()(witnesses.examples.double())
    for row, y, margin in zip(logits.tolist(), witnesses.labels.tolist(), witnesses.margins.tolist(), strict=True):
        assert margin == pytest.approx(max(v for k, v in enumerate(row) if k != y) - row[y])


class Saturated(nn.Module):
    """Logits that float32 cannot tell apart, and float64 can: class 0 there, what is larger here."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(10 + x)


def test_a_witness_is_wrong_in_float32_too_where_that_sees_a_tie() -> None:
    model, x, y = Saturated(), torch.tensor([[0.6, 0.4]]), torch.tensor([0])
    x_adv = torch.tensor([[0.4, 0.6]])
    assert model(x_adv).argmax(1) == 0 != model(x_adv.double()).argmax(1)
    assert len(make_witnesses(model, x, y, x_adv, norm="Linf", eps=0.3)) == 0
    told = Witnesses(
        x_adv, torch.tensor([0]), y, "Linf", 0.3, torch.tensor([0.2]).double(), torch.zeros(1).double(), None
    )
    assert "float32" in failed(verify(told, model, x, y))
    found = pclc.audit(model, x.repeat(60, 1), y.repeat(60), eps=0.3, mode="quick")
    assert (found.verdict, len(found.witnesses), found.robust_accuracy.value) == ("cannot judge", 0, 1.0)


def lie(name: str, true: Witnesses) -> Witnesses:
    examples, index, labels = true.examples.clone(), true.index.clone(), true.labels.clone()
    if name == "ball":
        examples[0] = (examples[0] + 0.2).clamp(0, 1)
    elif name == "box":
        examples[0, 0, 0, 0] = -1e-3
    elif name == "nan":
        examples[0, 0, 0, 0] = math.nan
    elif name == "index":
        index[0] = next(i for i in range(360) if i not in set(index.tolist()))
    elif name == "outside":
        index[0] = 10**6
    elif name == "labels":
        labels[0] = (labels[0] + 1) % 10
    elif name == "twice":
        index, labels, examples = (torch.cat([t, t[:1]]) for t in (index, labels, examples))
        return dataclasses.replace(
            true, examples=examples, index=index, labels=labels,
            norms=torch.cat([true.norms, true.norms[:1]]), margins=torch.cat([true.margins, true.margins[:1]]),
        )  # fmt: skip
    elif name == "eps":
        return dataclasses.replace(true, eps=EPS / 2)
    elif name == "norms":
        return dataclasses.replace(true, norms=true.norms / 2)
    elif name == "margins":
        return dataclasses.replace(true, margins=true.margins + 1)
    elif name == "data":
        assert true.data is not None
        return dataclasses.replace(true, data=true.data._replace(hash="0" * 16))
    elif name == "model":
        return dataclasses.replace(true, model_hash="0" * 16)
    return dataclasses.replace(true, examples=examples, index=index, labels=labels)


@pytest.mark.parametrize(
    ("name", "check", "lost"),
    [
        ("ball", "ball", 1),
        ("box", "ball", 1),
        ("nan", "ball", 1),
        ("index", "ball", 1),
        ("outside", "labels", 1),
        ("labels", "labels", 1),
        ("twice", "distinct", 1),
        ("eps", "ball", None),
        ("norms", "norms", 0),
        ("margins", "margins", 0),
        ("data", "data", 0),
        ("model", "model", 0),
    ],
)
def test_every_lie_is_found_out(
    case, witnesses: Witnesses, tmp_path: Path, name: str, check: str, lost: int | None
) -> None:
    false = lie(name, witnesses)
    false.save(tmp_path / "w.safetensors")
    found = verify(tmp_path / "w.safetensors", case.model)
    assert check in failed(found)
    assert ("FAILS" in str(found)) == (not found.holds), "what decides nothing differs"
    if lost is None:
        assert found.count < len(false)
    else:
        assert found.count == len(false) - lost
        if lost:
            assert not found.verified[-1 if name == "twice" else 0]
            assert not found.holds


def test_a_clean_image_that_is_right_is_no_witness(case, data) -> None:
    candidates = make_witnesses(case.model, case.x, case.y, case.x, norm="Linf", eps=0.0, data=DataSource.of(data))
    assert len(candidates) == int((case.model(case.x).argmax(1) != case.y).sum()) > 0
    right = torch.tensor([i for i in range(len(case.x)) if i not in set(candidates.index.tolist())])
    zeros = torch.zeros(len(right), dtype=torch.float64)
    false = dataclasses.replace(
        candidates, examples=case.x[right], index=right, labels=case.y[right], norms=zeros, margins=zeros
    )
    found = verify(false, case.model)
    assert failed(found) >= {"float32", "float64"}
    assert found.count == 0


def test_a_random_model_is_told(case, data, witnesses: Witnesses) -> None:
    assert "random" not in str(verify(witnesses, case.model))
    assert "unknown: The model is random" in str(verify(witnesses, Noisy(case.model)))


def test_another_model_is_noticed(case, witnesses: Witnesses) -> None:
    other = pclc.create_model("lenet8")
    found = verify(witnesses, other)
    assert "model" in failed(found)
    with torch.no_grad():
        assert found.count == int((other.eval()(witnesses.examples).argmax(1) != witnesses.labels).sum())


def test_originals_of_the_file_are_not_believed(case, tmp_path: Path) -> None:
    x_adv = PGD(eps=EPS, alpha=0.03, steps=10)(case.model, case.x, case.y)
    own = make_witnesses(case.model, case.x, case.y, x_adv, norm="Linf", eps=EPS)
    own.save(tmp_path / "w.safetensors")
    alone = verify(tmp_path / "w.safetensors", case.model)
    assert alone.count == len(own)
    assert not alone.holds, "nobody has seen the originals"
    assert "come from the file itself" in str(alone)
    assert verify(tmp_path / "w.safetensors", case.model, case.x, case.y).holds
    shifted = dataclasses.replace(own, originals=own.examples)
    assert verify(shifted, case.model, case.x, case.y).holds, "its originals are not even looked at"


def test_from_an_evaluation(case, data) -> None:
    attacks = ["fgsm(eps=0.15)", "pgd(eps=0.15, alpha=0.03, steps=10)"]
    report = pclc.evaluate(case.model, case.x, case.y, attacks, keep_examples=True, eight_bit=True)
    found = witnesses_of(report, case.model, case.x, case.y, norm="Linf", eps=EPS, data=DataSource.of(data))
    assert found.index.tolist() == (~report.survivors()).nonzero().squeeze(1).tolist()
    assert verify(found, case.model).holds
    nearest = torch.stack([torch.where(o.robust, math.inf, o.linf) for o in report.outcomes]).amin(0)
    assert torch.allclose(found.norms, torch.where(report.clean, nearest, 0.0)[found.index], atol=1e-7)
    small = witnesses_of(report, case.model, case.x, case.y, norm="Linf", eps=0.01)
    assert small.index.tolist() == (~report.clean).nonzero().squeeze(1).tolist()
    without = pclc.evaluate(case.model, case.x, case.y, attacks)
    with pytest.raises(ValueError, match=r"keep_examples=True"):
        witnesses_of(without, case.model, case.x, case.y, norm="Linf", eps=EPS)


class InSingle(nn.Module):
    """A model that computes in float32 whatever it is given, and so has no float64."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model.float()(x.float())
        return logits


def test_a_model_without_float64(case, data) -> None:
    model = InSingle(case.model).eval()
    x_adv = PGD(eps=EPS, alpha=0.03, steps=10)(model, case.x, case.y)
    found = verify(make_witnesses(model, case.x, case.y, x_adv, norm="Linf", eps=EPS, data=DataSource.of(data)), model)
    assert "unknown: The model cannot run in float64." in str(found)
    assert found.margins.isnan().all()


def test_refusals(case, witnesses: Witnesses, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Expected witnesses in"):
        verify(tmp_path / "none.safetensors", case.model)
    (tmp_path / "text.safetensors").write_text("hello")
    with pytest.raises(ValueError, match=r"cannot be read"):
        load_witnesses(tmp_path / "text.safetensors")
    save_file({"examples": torch.zeros(1)}, tmp_path / "other.safetensors")
    with pytest.raises(ValueError, match=r"to hold witnesses"):
        load_witnesses(tmp_path / "other.safetensors")
    dataclasses.replace(witnesses, labels=witnesses.labels[1:]).save(tmp_path / "short.safetensors")
    with pytest.raises(ValueError, match=r"`labels` in .* one number for each example"):
        load_witnesses(tmp_path / "short.safetensors")
    with pytest.raises(ValueError, match=r"`x` and `y` together"):
        verify(witnesses, case.model, case.x)
    with pytest.raises(ValueError, match=r"name no data set and hold no originals"):
        verify(dataclasses.replace(witnesses, data=None), case.model)
    with pytest.raises(ValueError, match=r"of the shape of the images"):
        verify(witnesses, case.model, torch.zeros(360, 3, 8, 8), torch.zeros(360, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"`x_adv` to have the shape"):
        make_witnesses(case.model, case.x, case.y, case.x[:1], norm="Linf", eps=EPS)
    for model in (case.model, InSingle(case.model).eval()):
        with pytest.raises(ValueError, match=r"every label to lie in \[0, 9\].*but got labels from 0 to 10"):
            make_witnesses(model, case.x, case.y.masked_fill(case.y == 9, 10), case.x, norm="Linf", eps=EPS)
    for n in (0, 3):
        with pytest.raises(ValueError, match=rf"all of the data, but got {n} images and 2 labels"):
            verify(witnesses, case.model, case.x[:n], case.y[:2])


@pytest.mark.parametrize(
    ("change", "dtype", "message"),
    [
        (lambda about: [about], torch.float32, "to hold witnesses"),
        (lambda about: about | {"data": "digits"}, torch.float32, "`data` in .* texts for"),
        (lambda about: about | {"data": {"name": "digits"}}, torch.float32, "`data` in .* texts for"),
        (lambda about: about | {"data": dict.fromkeys(about["data"], 3)}, torch.float32, "`data` in .* texts for"),
        (dict, torch.int32, "`examples` in .* to be uint8, float32 or float64, but got torch.int32"),
        (dict, torch.bfloat16, "`examples` in .* but got torch.bfloat16"),
        (dict, torch.float64, "the parameters of `model` to be torch.float64"),
    ],
)
def test_a_file_of_another_making_gets_a_sentence(
    case, witnesses: Witnesses, tmp_path: Path, change, dtype: torch.dtype, message: str
) -> None:
    path = tmp_path / "w.safetensors"
    dataclasses.replace(witnesses, examples=witnesses.examples.to(dtype)).save(path)
    with safe_open(path, "pt") as content:
        about = json.loads(content.metadata()["pclc"])
    save_file(load_file(path), path, metadata={"pclc": json.dumps(change(about))})
    with pytest.raises(ValueError, match=message):
        verify(path, case.model)


def test_none_at_all(case, data) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", SetupWarning)
        right = case.model(case.x).argmax(1) == case.y
    x, y = case.x[right], case.y[right]
    none = make_witnesses(case.model, x, y, x, norm="Linf", eps=0.1, data=DataSource.of(data))
    assert len(none) == 0
    assert not verify(none, case.model).holds, "no witness proves nothing"
