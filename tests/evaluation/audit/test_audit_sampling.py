"""Costly attacks see a sample of what stands, and the rest where that pays."""

import importlib

import pytest
import torch
from test_audit import EPS, data, linear, safe

import pclc
from pclc.attacks import APGD, SPSA, HardLabel, Square
from pclc.evaluation.audit.ladder import COSTLY, Threat, ladder

module = importlib.import_module("pclc.evaluation.audit.run")
SAMPLE = 20
BLIND = "black-box attacks find nothing more"


@pytest.fixture(autouse=True)
def one_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small sample, and of the checks only the one that speaks of it."""
    monkeypatch.setattr(module, "_SAMPLE", SAMPLE)
    monkeypatch.setattr(module, "CHECKS", {BLIND: module.CHECKS[BLIND]})
    monkeypatch.setattr(module, "_LATE", (BLIND,))


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ladder of two; no further ones, where the audit looks closer."""
    attacks = (APGD(EPS, 2), HardLabel(EPS, 300))
    monkeypatch.setattr(module, "ladder", lambda mode, threat: attacks if mode == "quick" else ())


@pytest.mark.usefixtures("small")
def test_where_little_falls_the_rest_is_spared() -> None:
    x, y = data(80)
    found = pclc.audit(linear(), x, y, eps=EPS, mode="quick")
    stood = int(safe(x, EPS).sum())
    step = found.steps[-1]
    assert (step.tried, step.broke, step.spared) == (SAMPLE, 0, stood - SAMPLE)
    assert found.robust_accuracy.value == pytest.approx(stood / 80)
    assert f"hard_label(eps=0.1, queries=300) on {SAMPLE} of {stood}" in "\n".join(found.lines())
    (check,) = found.checks
    assert (check.state, check.measured) == ("silent", f"0 of {SAMPLE}")


@pytest.mark.usefixtures("small")
def test_where_more_falls_all_are_attacked() -> None:
    x, y = data(80)
    found = pclc.audit(linear(1e4), x, y, eps=EPS, claim=0.01, mode="quick")
    step = found.steps[-1]
    assert step.tried == 80 - sum(step.broke for step in found.steps[:-1]) > SAMPLE
    assert step.broke > SAMPLE
    assert step.spared == 0
    assert "random sample" not in "\n".join(found.lines())
    (check,) = found.checks
    assert check.state == "fired"
    assert check.measured.endswith(f"of {SAMPLE}")  # a share of the sample, whatever else was attacked


def test_the_sample_is_drawn_at_random(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def ladder_of_one(mode, threat):
        return (HardLabel(EPS, 10),)

    plain = module.Standing.strike

    def strike(self, attack, craft, rows):
        seen.append((attack, rows))
        return plain(self, attack, craft, rows)

    monkeypatch.setattr(module, "ladder", ladder_of_one)
    monkeypatch.setattr(module.Standing, "strike", strike)
    x, y = data(200)
    pclc.audit(linear(), x, y, eps=EPS, mode="quick")
    rows = next(rows for attack, rows in seen if isinstance(attack, HardLabel))
    assert len(rows) == SAMPLE
    assert not torch.equal(rows.sort().values, safe(x, EPS).nonzero().squeeze(1)[:SAMPLE])


@pytest.mark.filterwarnings("ignore:100.0% of the gradients")
def test_costly_is_what_costs_more_than_square() -> None:
    """In forward passes an example that stands, where a backward pass counts twice."""
    x, y = torch.full((1, 4), 0.5), torch.zeros(1, dtype=torch.int64)
    model = torch.nn.Linear(4, 4)
    model.bias.data[0] = 1e3  # nothing moves it
    for attack in ladder("full", Threat("Linf", EPS, 4, 1.0, True)):
        if isinstance(attack, HardLabel):
            assert attack.queries > 5000
        elif isinstance(attack, SPSA):
            assert 2 * attack.samples * attack.steps > 5000
        elif not isinstance(attack, Square):
            run = attack.run(model, x, y)
            assert 0 < run.forwards + 2 * run.backwards < 5000, attack
            assert not isinstance(attack, COSTLY)
