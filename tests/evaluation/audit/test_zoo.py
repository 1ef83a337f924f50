"""Some models of the zoo, one seed: the hollow ones are refuted, the honest ones are not."""

from pathlib import Path

import pytest
import torch

import pclc
from pclc.bench.result import BenchResult
from pclc.bench.zoo import bench_zoo, label
from pclc.bench.zoo_models import Member, zoo
from pclc.bench.zoo_page import error_rates, write_section, zoo_section
from pclc.data.dataset import Dataset

SOME = {
    "pc-lc": "refuted",
    "saturated": "refuted",  # both scales
    "quantised input": "refuted",
    "quantised module": "refuted",
    "detached": "refuted",
    "rounded logits": "refuted",
    "purified": "refuted",
    "optimising forward": "refuted",
    "saturated, adversarially trained": "refuted",  # robust, but not as much as it seems
    "cross-entropy": "not refuted",
    "cross-entropy that falls": "not refuted",
    "madry": "not refuted",
    "interval bounds": "not refuted",
}
MEMBERS = [member for member in zoo(1) if member.family in SOME and (member.family, member.eps) not in
           [("madry", 0.1), ("interval bounds", 0.05)]]  # fmt: skip


@pytest.fixture(scope="module")
def digits() -> tuple[Dataset, Dataset]:
    return pclc.load_dataset("digits"), pclc.load_dataset("digits", "test")


@pytest.mark.parametrize("member", MEMBERS, ids=[member.name for member in MEMBERS])
def test_the_verdict_is_right(member: Member, digits: tuple[Dataset, Dataset]) -> None:
    train, test = digits
    built = member.build(train)
    x, y = test.images[:150].float() / 255, test.labels[:150]
    found = pclc.audit(built.model, x, y, eps=member.eps, mode="quick")
    assert found.verdict == SOME[member.family], "\n".join(found.lines())
    if built.certify is not None:
        proved = built.certify(x, y, member.eps)
        assert proved.float().mean() > 0.5
        # No witness where the bound says that there is none.
        assert not proved[found.witnesses.index].any()


def test_some_of_each_kind() -> None:
    assert len(MEMBERS) == 14


def test_labels() -> None:
    assert label(0.0, 0.0) == "true"
    assert label(0.03, 0.0) == "between"


ROW = {
    "model": "a", "made to be": "honest", "claimed %": 50.0, "truth %": 49.0, "certified %": 40.0,
    "overstated %": 2.0, "the claim is": "true", "verdict": "not refuted", "bound %": 0.0,
}  # fmt: skip


def test_error_rates_count_what_they_say() -> None:
    rows = [ROW, ROW | {"verdict": "refuted"}, ROW | {"the claim is": "false"}]
    rates = {rate["what"]: rate["count"] for rate in error_rates(rows)}
    assert rates["false refutations, of true claims"] == "1 of 2"
    assert rates["misses (not refuted), of false claims"] == "1 of 1"
    assert rates["refuted, of claims in between"] == "0 of 0"


def test_the_section_is_replaced_and_nothing_else(tmp_path: Path) -> None:
    result = BenchResult("zoo", "pclc bench zoo", ("note",), {"torch": torch.__version__}, (ROW,))
    page = tmp_path / "page.md"
    marks = "head\n<!-- checks: begin -->\n<!-- checks: end -->\nmiddle\n<!-- zoo: begin -->old<!-- zoo: end -->\ntail"
    page.write_text(marks)
    write_section(result, page)
    text = page.read_text()
    assert zoo_section(result) in text
    assert "old" not in text
    assert text.startswith("head\n")
    assert text.endswith("tail")
    write_section(result, page)
    assert page.read_text() == text
    page.write_text("no marks")
    with pytest.raises(ValueError, match="to have the marks"):
        write_section(result, page)


def test_a_family_that_does_not_exist_is_not_skipped() -> None:
    with pytest.raises(ValueError, match=r"families of the zoo, .*madry.*, but got madry, nobody"):
        bench_zoo(seeds=1, only=["madry", "nobody"])
