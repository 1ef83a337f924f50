"""`pclc evaluate` and `pclc verify` as a user types them."""

import json
from pathlib import Path

import pytest
import torch

import pclc
from pclc.attacks import FGSM, PGD
from pclc.evaluation import DataSource, load_evaluation, make_witnesses

PGD_TEXT = "pgd(eps=0.1, alpha=0.03, steps=5)"


@pytest.fixture
def run(case, tmp_path: Path) -> Path:
    """A run directory as `pclc train` leaves it, as far as evaluation reads it."""
    directory = pclc.RunDirectory(tmp_path / "run")
    directory.begin({"dataset": {"name": "digits", "examples": 1437}})
    pclc.save_model(case.model, directory.path)
    return directory.path


def test_evaluate_prints_a_table_with_its_conditions(command, run: Path, case) -> None:
    done = command("evaluate", run, "--attack", PGD_TEXT, "--eps", "0.05", "--eps", "25.5/255", "--examples", "120")
    assert done.code == 0, done.err
    for word in ("120 examples of digits, test", "Clopper-Pearson", "seed 0", "cpu", PGD_TEXT,
                 "worst case in Linf, eps 0.05", "worst case of all"):  # fmt: skip
        assert word in done.out
    expected = pclc.evaluate(case.model, case.x, case.y, [PGD_TEXT], eps=[0.05, 0.1])
    written = load_evaluation(run)
    assert [o.robust.tolist() for o in written.outcomes] == [o.robust.tolist() for o in expected.outcomes]
    assert f"{100 * expected.robust_accuracy.value:.2f}" in done.out


def test_evaluate_json_transfer_and_examples(command, run: Path, case, tmp_path: Path) -> None:
    twin = tmp_path / "twin"
    pclc.save_model(pclc.create_model("lenet8"), twin)
    done = command(
        "evaluate", run, "--attack", "fgsm(eps=0.2)", "--transfer-from", twin, "--examples", "30", "--eight-bit",
        "--keep-examples", "--out", tmp_path / "out", "--json",
    )  # fmt: skip
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document == json.loads((tmp_path / "out" / "evaluation.json").read_text())
    assert document["attacks"][0]["attack"] == 'transfer(fgsm(eps=0.2, stop="never"), substitute=twin)'
    assert document["attacks"][0]["substitute"] == pclc.evaluation.model_hash(pclc.load_model(twin))
    assert (document["n"], document["conditions"]["eight_bit"]) == (30, True)
    assert (tmp_path / "out" / "adversarial-0.safetensors").exists()
    assert not (run / "evaluation.json").exists()


def test_evaluate_any_model(command, case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.save(case.model.state_dict(), tmp_path / "net.pt")
    arguments = ("evaluate", "--model", "lenet8", "--weights", tmp_path / "net.pt", "--attack", "fgsm(eps=0.1)",
                 "--examples", "50", "--json")  # fmt: skip
    assert "Expected --dataset, because the model does not say" in command(*arguments).err
    done = command(*arguments, "--dataset", "digits")
    expected = pclc.evaluate(case.model, case.x[:50], case.y[:50], [FGSM(eps=0.1)])
    assert json.loads(done.out)["attacks"][0]["accuracy"]["correct"] == expected.outcomes[0].accuracy.correct


def test_the_traps_are_printed(command, tmp_path: Path) -> None:
    done = command("evaluate", "--model", "lenet8", "--dataset", "digits", "--examples", "40")
    assert "is near chance" in done.out
    assert "SetupWarning" not in done.err


def test_verify(command, run: Path, case, tmp_path: Path) -> None:
    x_adv = PGD(eps=0.15, alpha=0.03, steps=10)(case.model, case.x, case.y)
    source = DataSource.of(pclc.load_dataset("digits", "test"))
    found = make_witnesses(case.model, case.x, case.y, x_adv, norm="Linf", eps=0.15, data=source)
    file = tmp_path / "w.safetensors"
    found.save(file)
    done = command("verify", file, "--model", run)
    assert done.code == 0, done.err
    assert f"{len(found)} of {len(found)} witnesses are verified." in done.out
    assert "Linf eps 0.15" in done.out
    other = tmp_path / "other"
    pclc.save_model(pclc.create_model("lenet8"), other)
    done = command("verify", file, "--model", other, "--json")
    assert done.code == 1
    document = json.loads(done.out)
    assert not document["holds"]
    assert document["verified"] + len(document["failed"]) == len(found)
    done = command("verify", file, "--model", run, "--dataset", "digits", "--split", "train")
    assert done.code == 1
    assert "FAILS" in done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("evaluate",), "Expected a model from one place"),
        (("evaluate", "nowhere", "--dataset", "digits"), "nowhere"),
        (("evaluate", "--model", "lenet8", "--dataset", "digits", "--attack", "pgd(eps=0.1"), "Expected an attack"),
        (
            ("evaluate", "--model", "lenet8", "--dataset", "digits", "--attack", "fgsm(eps=0.1)", "--eps", "a"),
            "Expected --eps to be a number",
        ),
        (("evaluate", "--model", "lenet8", "--dataset", "digits", "--examples", "0"), "--examples to be at least 1"),
        (("verify", "nothing.safetensors", "--model", "lenet8"), "Expected witnesses in"),
    ],
)
def test_a_mistake_ends_in_a_sentence(command, arguments: tuple[str, ...], sentence: str) -> None:
    done = command(*arguments)
    assert done.code == 2
    assert done.err.startswith("pclc: ")
    assert sentence in done.err
