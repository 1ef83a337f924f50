"""The page on the audit says what the code does and what was measured."""

from pathlib import Path

from pclc.bench.audits import load_recorded
from pclc.bench.audits_page import audits_in_short, audits_section
from pclc.bench.result import BenchResult
from pclc.bench.zoo_page import zoo_section
from pclc.evaluation.audit import LEAST, LINE
from pclc.evaluation.audit.finding import check_table
from pclc.evaluation.audit.randomness import DRAWS
from pclc.evaluation.audit.run import _SAMPLE, _WORTH_IT
from pclc.evaluation.audit.verdict import ALPHA, FEWEST_FOR_TWO, FIRST_ALPHA, FIRST_LOOK

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "audit.md").read_text(encoding="utf-8")


def test_the_checks_are_those_of_the_code() -> None:
    assert check_table() in PAGE


def test_the_error_rates_are_those_of_the_file() -> None:
    result = BenchResult.load(ROOT / "results" / "zoo.json")
    assert len(result.rows) >= 60
    assert zoo_section(result) in PAGE
    assert not [row for row in result.rows if row["the claim is"] == "true" and row["verdict"] == "refuted"]


def test_the_audits_are_those_of_the_files() -> None:
    found = load_recorded(ROOT / "results" / "audits")
    assert audits_section(found) in PAGE
    assert audits_in_short(found) in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_numbers_in_the_text_are_those_of_the_code() -> None:
    text = " ".join(PAGE.split())
    for words in (
        f"that bound is above {LINE:.0%}".replace("%", " %"),
        f"surely above {100 * LEAST:g} points",
        f"From {FEWEST_FOR_TWO:,} examples on, the audit looks first at {FIRST_LOOK} of them",
        f"an error chance of {100 * FIRST_ALPHA:g} %, and at all of them with {100 * (ALPHA - FIRST_ALPHA):g} %",
        f"over {DRAWS} fresh draws",
        f"a random sample of {_SAMPLE} survivors",
        f"more than {100 * _WORTH_IT:g} % of the sample",
    ):
        assert words in text, words
