"""The rule: bounds in closed form, lines, looks, and the order of reasons."""

import math

import pytest
import torch
from torch import Tensor

from pclc.evaluation.audit.shares import Share, hoeffding
from pclc.evaluation.audit.verdict import ALPHA, LEAST, LINE, Overstatement, is_refuted, judge, looks, overstatement


def flags(right: int, n: int) -> Tensor:
    return torch.arange(n) < right


def verdict(claimed: Tensor | float, worst: Tensor, near: str | None = None, doubts: tuple[str, ...] = ()) -> str:
    found = overstatement(claimed, worst, ALPHA)
    return judge(claimed, worst, found, spoilt=near, doubts=list(doubts)).verdict


def test_the_bound_of_a_default_claim_is_the_exact_one_of_the_broken_among_the_safe() -> None:
    found = overstatement(flags(10, 50), flags(0, 50), 0.05)
    assert found.value == 1
    assert found.bound == pytest.approx(0.05 ** (1 / 10))  # all of ten
    tail = sum(math.comb(40, k) * found_p**k * (1 - found_p) ** (40 - k) for found_p in
               [overstatement(flags(40, 50), flags(30, 50), 0.05).bound] for k in range(10, 41))  # fmt: skip
    assert tail == pytest.approx(0.05, abs=1e-6)


def test_what_was_wrong_before_does_not_count_against_the_claim() -> None:
    """Broken examples that the claim does not count as safe leave the overstatement alone."""
    claimed, worst = flags(50, 100), flags(50, 100)
    assert overstatement(claimed, worst, 0.05).value == 0
    assert overstatement(claimed, worst, 0.05).bound == 0


def test_a_stated_claim_is_refuted_beyond_its_sampling_error() -> None:
    worst = flags(45, 100)
    assert verdict(0.53, worst) == "not refuted"  # 45 of 100 happen at 53 %
    assert verdict(0.60, worst) == "refuted"
    found = overstatement(0.6, worst, 0.05)
    most = 0.6 * (1 - found.bound)
    assert sum(math.comb(100, k) * most**k * (1 - most) ** (100 - k) for k in range(46)) == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("safe", "left", "expected"),
    [
        (100, 100, "not refuted"),
        (100, 90, "not refuted"),  # 10 %
        (100, 60, "refuted"),
        (0, 0, "not refuted"),  # PGD has already brought it to nothing
        (2, 0, "not refuted"),  # 1 % is no claim of robustness
        (20, 0, "refuted"),  # 10 % is one
    ],
)
def test_the_default_claim(safe: int, left: int, expected: str) -> None:
    assert verdict(flags(safe, 200), flags(left, 200)) == expected


def test_both_lines_have_to_be_passed() -> None:
    assert is_refuted(Overstatement(0.5, LINE + 0.01, 0.95, LEAST + 0.01), stated=False)
    assert not is_refuted(Overstatement(0.5, LINE - 0.01, 0.95, LEAST + 0.01), stated=False)
    assert not is_refuted(Overstatement(0.5, LINE + 0.01, 0.95, LEAST - 0.01), stated=False)


def test_no_claim_is_overstated_by_at_least_less_than_nothing() -> None:
    told = str(overstatement(0.52, flags(50, 100), 0.05))
    assert told == "3.8 % of the claim, at least 0.0 % (95 % bound)"
    assert str(overstatement(0.5, flags(50, 100), 0.05)) == "none: no less is left than is claimed"


def test_too_few_examples_cannot_be_judged() -> None:
    assert verdict(flags(1, 1), flags(1, 1)) == "cannot judge"
    assert verdict(flags(1, 1), flags(0, 1)) == "cannot judge"


def reason(claimed: Tensor | float, worst: Tensor) -> str:
    judged = judge(claimed, worst, overstatement(claimed, worst, ALPHA), spoilt=None, doubts=[])
    assert judged.verdict == "not refuted"
    return judged.reason


def test_few_examples_say_little() -> None:
    for claimed in (0.9, flags(5, 5)):
        told = reason(claimed, flags(5, 5))
        assert "that says little: anything from 48 to 100 % may be left" in told  # 0.025 ** (1 / 5) = 0.478
        assert "so few examples refute only claims that are far off. Use more examples." in told
    assert "With only 5 examples that says little: anything from 0 to 52 %" in reason(flags(0, 5), flags(0, 5))
    assert "With only 60 examples" in reason(0.55, flags(30, 60))  # 36.8 to 63.2 %
    assert "so few" not in reason(0.99, flags(59, 60))  # 91.1 to 100.0 %
    assert "With only 160 examples" in reason(0.55, torch.full((160,), 0.5))  # by Hoeffding's bound


@pytest.mark.parametrize("n", [256, 1000])
def test_many_examples_are_never_called_few(n: int) -> None:
    for right in range(0, n + 1, 16):
        worst = flags(right, n)
        assert "so few" not in reason(worst, worst)
        if right:
            assert "so few" not in reason(right / n, worst)
    assert "so few" not in reason(0.5, torch.full((n,), 0.5))


def test_reasons_have_an_order() -> None:
    assert verdict(flags(100, 100), flags(0, 100), near="near chance") == "cannot judge"  # the set-up is wrong
    assert verdict(flags(100, 100), flags(0, 100), doubts=("planted",)) == "refuted"  # witnesses need no gradients
    assert verdict(flags(100, 100), flags(100, 100), doubts=("planted",)) == "cannot judge"


def test_scores_of_random_models_have_hoeffdings_bound() -> None:
    n = 400
    claimed, worst = torch.full((n,), 0.9).double(), torch.full((n,), 0.3).double()
    found = overstatement(claimed, worst, 0.05)
    # At the bound L the mean of (1 - L) claimed - worst is as large as chance allows for numbers of width 2 - L.
    excess = (1 - found.bound) * 0.9 - 0.3
    assert excess == pytest.approx((2 - found.bound) * hoeffding(n, 0.05))
    assert overstatement(claimed, claimed, 0.05).bound == 0
    assert overstatement(0.5, worst, 0.05).bound == pytest.approx(1 - (0.3 + hoeffding(n, 0.05)) / 0.5)


def test_false_refutations_are_as_rare_as_promised() -> None:
    """A model whose every safe example falls with exactly the chance that the line allows."""
    generator = torch.Generator().manual_seed(0)
    refuted = 0
    for _ in range(1000):
        worst = torch.rand(200, generator=generator) >= LINE
        refuted += is_refuted(overstatement(flags(200, 200), worst, ALPHA), stated=False)
    assert refuted <= 50 + 3 * math.sqrt(1000 * 0.05 * 0.95)


def test_looks_share_the_chance_of_error() -> None:
    assert [look.examples for look in looks(100, may_stop=True)] == [100]
    both = looks(5000, may_stop=True)
    assert [look.examples for look in both] == [256, 5000]
    assert sum(look.alpha for look in both) == pytest.approx(ALPHA)
    assert [tuple(look) for look in looks(5000, may_stop=False)] == [(5000, ALPHA)]


def test_shares() -> None:
    exact, mean = Share.of(flags(30, 100), 0.95), Share.of(flags(30, 100).double(), 0.95)
    assert exact.value == mean.value == 0.3
    assert mean.low < exact.low < 0.3 < exact.high < mean.high
    assert mean.high - 0.3 == pytest.approx(math.sqrt(math.log(2 / 0.05) / 200))  # both sides share the 5 %
    assert Share.of(torch.ones(5).double(), 0.95).high == 1
