"""The paper's claims, held against the paper's own tables: what was counted there by hand comes out."""

import re

import pytest

from pclc.experiments.claims import load_claims, parse_claims, published_figures
from pclc.experiments.experiment import experiment_names

CLAIMS = {claim.name: claim for claim in load_claims()}


@pytest.mark.parametrize(
    ("name", "held", "of"),
    [
        ("white-box gain", 65, 65),
        ("black-box gain", 35, 35),
        ("better than GCE", 22, 26),
        ("PC-LC alone beats FGSM training", 14, 15),
        ("masking 1: iterative attacks are stronger", 31, 45),
        ("masking 2: white-box attacks are stronger", 26, 30),
        ("masking 3a: accuracy falls with eps", 40, 40),
        ("masking 3b: nothing is left at a large eps", 2, 9),
        ("larger gaps", 2, 2),
    ],
)
def test_the_papers_own_tables(name: str, held: int, of: int) -> None:
    finding = CLAIMS[name].find(published_figures())
    assert (finding.held, finding.of) == (held, of)
    assert len(finding.exceptions) == of - held


def test_what_fails_is_named() -> None:
    finding = CLAIMS["PC-LC alone beats FGSM training"].find(published_figures())
    assert finding.exceptions == ("kmnist pgd 0.3: pc-lc 33.2, ce+at 37.2",)
    assert finding.holds is False
    assert CLAIMS["better than GCE"].find(published_figures()).holds is True  # four of 26 are fewer than a fifth


def test_claims_about_figures_have_nothing_to_compare_in_the_tables() -> None:
    for claim in CLAIMS.values():
        drawn = claim.settings["experiment"].startswith("figure")
        assert (claim.find(published_figures()).holds is None) == drawn


def test_claims_speak_of_experiments_that_there_are() -> None:
    assert len(CLAIMS) == len(load_claims())
    for claim in CLAIMS.values():
        assert {claim.settings["experiment"], claim.settings.get("white_box", "table1")} <= set(experiment_names())


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"check": "abov"}, "Expected `check` of 'x' to be one of above, gains_more, limited"),
        ({"with": {"colum": "ce"}}, "The settings of 'x' do not fit above"),
        ({"texts": "y"}, "Expected the keys of a claim to be among name, source, text, check, with, reading"),
    ],
)
def test_refusals(change: dict[str, object], sentence: str) -> None:
    settings = {"experiment": "table1", "column": "ce", "than": "gce"}
    claim = {"name": "x", "source": "y", "text": "z", "check": "above", "with": settings, **change}
    with pytest.raises(ValueError, match=re.escape(sentence)):
        parse_claims({"claims": [claim]})
