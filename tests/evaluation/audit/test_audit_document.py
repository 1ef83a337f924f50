"""audit.json as its schema describes it."""

import copy
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from audit_models import Case
from json_schema import problems
from torch import nn

import pclc
from pclc.bench.zoo_models import Noisy
from pclc.evaluation.audit.document import load_document, to_document

SCHEMA = json.loads(files("pclc.evaluation.audit").joinpath("schema.json").read_text())


@pytest.fixture(scope="module")
def document(trained: nn.Module) -> Any:
    test = pclc.load_dataset("digits", "test")
    case = Case(trained.eval(), test.images[:60].float() / 255, test.labels[:60])
    found = pclc.audit(case.model, case.x, case.y, eps=0.1, mode="quick", loss="gce", twin=case.model)
    return json.loads(json.dumps(to_document(found), allow_nan=False))


def test_a_real_audit_fits(document: Any) -> None:
    assert problems(document, SCHEMA) == []
    assert (document["conditions"]["loss"], document["conditions"]["twin"]) == (
        "gce", document["conditions"]["model_hash"],
    )  # fmt: skip


def test_stated_claims_and_random_models_fit(case: Case) -> None:
    found = pclc.audit(Noisy(case.model), case.x[:30], case.y[:30], eps=0.1, claim=0.9, mode="quick")
    assert problems(json.loads(json.dumps(to_document(found), allow_nan=False)), SCHEMA) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("verdict",), "true"),
        (("claimed", "low"), -0.1),
        (("clean",), None),
        (("checks", 0, "state"), "maybe"),
        (("attacks", 0, "tried"), 0.5),
        (("conditions", "mode"), "slow"),
        (("conditions", "more"), 1),
        (("witnesses", "index"), ["1"]),
    ],
)
def test_the_schema_refuses(document: Any, path: tuple[str | int, ...], value: object) -> None:
    changed = copy.deepcopy(document)
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    assert problems(changed, SCHEMA)


def test_what_is_no_audit_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Expected an audit in"):
        load_document(tmp_path)
    for content, sentence in (("{", "to be JSON"), ("[]", "pclc-audit, version 1"), ('{"format": 1}', "version 1")):
        (tmp_path / "audit.json").write_text(content)
        with pytest.raises(ValueError, match=sentence):
            load_document(tmp_path)
