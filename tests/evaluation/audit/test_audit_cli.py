"""`pclc audit` as a user types it."""

import json
from pathlib import Path

import pytest
from audit_models import Case

import pclc


@pytest.fixture
def run(case: Case, tmp_path: Path) -> Path:
    directory = pclc.RunDirectory(tmp_path / "run")
    directory.begin({"dataset": {"name": "digits", "examples": 1437}, "train": {"loss": "gce"}})
    pclc.save_model(case.model, directory.path)
    return directory.path


def test_refuted_and_verified(command, run: Path) -> None:
    done = command("audit", run, "--eps", "25.5/255", "--claim", "0.97", "--quick", "--examples", "60")
    assert done.code == 1, done.err
    assert "REFUTED" in done.out
    assert "60 examples of digits, test" in done.out
    assert "witnesses.safetensors" in done.out
    assert "--checks shows all" in done.out
    assert "an unbounded attack succeeds" not in done.out, "it is silent"
    assert "left" in done.err  # the bar and its ETA
    document = json.loads((run / "audit.json").read_text())
    assert (document["verdict"], document["stated_claim"]) == ("refuted", 0.97)
    assert 'objective="gce"' in " ".join(step["attack"] for step in document["attacks"])  # its loss
    checked = command("verify", run / "witnesses.safetensors", "--model", run)
    assert checked.code == 0, checked.out


def test_not_refuted(command, run: Path, tmp_path: Path) -> None:
    done = command("audit", run, "--eps", "0.01", "--quick", "--examples", "60", "--out", tmp_path / "a", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document == json.loads((tmp_path / "a" / "audit.json").read_text())
    assert document["verdict"] == "not refuted"
    assert len(document["checks"]) == len(pclc.evaluation.audit.CHECKS)
    assert not (run / "audit.json").exists()


def test_every_check_is_shown_where_that_is_asked(command, run: Path) -> None:
    done = command("audit", run, "--eps", "0.01", "--claim", "0.1", "--quick", "--examples", "60", "--checks")
    assert all(name in done.out for name in pclc.evaluation.audit.CHECKS)
    assert "--checks shows all" not in done.out
    assert "overstatement: none" in done.out, "more is left than is claimed"


def test_cannot_judge(command) -> None:
    done = command("audit", "--model", "lenet8", "--dataset", "digits", "--eps", "0.1", "--quick", "--examples", "100")
    assert done.code == 3, done.err
    assert "near chance" in done.out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--quick", "--full"), "Expected one of --quick and --full"),
        (("--eps", "a"), "Expected --eps to be a number"),
        (("--examples", "0"), "--examples to be at least 1"),
        (("--claim", "53"), "Expected `claim` to be an accuracy"),
        (("--norm", "L7"), "Expected `norm` to be"),
    ],
)
def test_a_mistake_ends_in_a_sentence(command, arguments: tuple[str, ...], sentence: str) -> None:
    done = command("audit", "--model", "lenet8", "--dataset", "digits", *arguments)
    assert done.code == 2
    assert sentence in done.err
