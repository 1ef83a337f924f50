"""The rule by which a claim is judged, and the lines it uses."""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from pclc.evaluation.audit.shares import Share, hoeffding
from pclc.evaluation.statistics import lower_bound, upper_bound

Verdict = Literal["refuted", "not refuted", "cannot judge"]

# A default claim may be off by this share of itself. Adversarially trained models lose 6 to 8 % of what their authors
# report when AutoAttack measures them, MART 13 %, and defences that fell 21 to 99 % (README of auto-attack). The zoo
# (`pclc bench zoo`) records the largest loss of an honest model beside it.
LINE = 0.15
# And by this much in absolute terms: a model that PGD brings to 1 % claims no robustness, though 0 is 100 % less.
LEAST = 0.02
# Chance that the luck of the sample refutes a true claim, all looks together.
ALPHA = 0.05
# The first look: its number of random examples, its share of ALPHA, and from how many examples on there are two looks.
FIRST_LOOK, FIRST_ALPHA, FEWEST_FOR_TWO = 256, 0.01, 1024
# An interval of the worst case that reaches further than this to both sides has too few examples for "not refuted" to
# say much. From 256 on none does, not even Hoeffding's for random models.
COARSE = 0.10


class Look(NamedTuple):
    """A moment at which the audit may stop: after this many examples, at this chance of error."""

    examples: int
    alpha: float


@dataclass(frozen=True)
class Overstatement:
    """How much of a claim is not there: 1 - worst case / claimed.

    Attributes:
        value: as measured; None where nothing is claimed.
        bound: it is at least this, one-sided at `confidence`.
        confidence: 0.95, or more where the audit looks twice.
        points: the difference of both accuracies is at least this, at the same confidence.
    """

    value: float | None
    bound: float
    confidence: float
    points: float

    def __str__(self) -> str:
        if self.value is None:
            return "nothing is claimed"
        if self.value <= 0:
            return "none: no less is left than is claimed"
        share, least, confidence = 100 * self.value, 100 * max(0.0, self.bound), 100 * self.confidence
        return f"{share:.1f} % of the claim, at least {least:.1f} % ({confidence:g} % bound)"


class Judgement(NamedTuple):
    """A verdict and its reason in words."""

    verdict: Verdict
    reason: str


def looks(n: int, may_stop: bool) -> tuple[Look, ...]:
    """When the audit decides; fixed by n alone, so that the chances of error add up to ALPHA at the most.

    Example:
        >>> looks(500, may_stop=True)
        (Look(examples=500, alpha=0.05),)
        >>> [look.examples for look in looks(10_000, may_stop=True)]
        [256, 10000]
    """
    if not may_stop or n < FEWEST_FOR_TWO:
        return (Look(n, ALPHA),)
    return Look(FIRST_LOOK, FIRST_ALPHA), Look(n, ALPHA - FIRST_ALPHA)


def overstatement(claimed: Tensor | float, worst: Tensor, alpha: float) -> Overstatement:
    """The overstatement of a claim, with exact bounds.

    Args:
        claimed: (N,) flags of a default claim, or scores in [0, 1] of a random model; a number is a stated claim.
        worst: (N,) flags or scores that are left in the worst case.
        alpha: chance of error.

    A default claim is paired with the worst case: of the examples that it counts as safe, each is broken or not, so
    the count of broken ones is binomial. Scores have Hoeffding's bound on the mean of (1 - L) claimed - worst. A stated
    claim is held against the upper bound of the worst case.

    Example:
        >>> import torch
        >>> found = overstatement(torch.ones(100, dtype=torch.bool), torch.arange(100) >= 30, alpha=0.05)
        >>> round(found.value, 2), round(found.bound, 3)
        (0.3, 0.225)
        >>> round(overstatement(0.9, torch.arange(100) >= 30, alpha=0.05).bound, 3)
        0.139
    """
    n, left = len(worst), float(worst.double().mean())
    exact, confidence = not worst.is_floating_point(), 1 - alpha
    if isinstance(claimed, float):
        most = upper_bound(int(worst.sum()), n, confidence) if exact else min(1.0, left + hoeffding(n, alpha))
        value = 1 - left / claimed if claimed else None
        return Overstatement(value, 1 - most / claimed if claimed else 0.0, confidence, claimed - most)
    total = float(claimed.double().mean())
    if not total:
        return Overstatement(None, 0.0, confidence, 0.0)
    if exact:
        safe, broken = int(claimed.sum()), int((claimed & ~worst).sum())
        bound = lower_bound(broken, safe, confidence)
        return Overstatement(broken / safe, bound, confidence, lower_bound(broken, n, confidence))
    reach = hoeffding(n, alpha)
    bound = max(0.0, (total - left - 2 * reach) / (total - reach)) if total > reach else 0.0
    return Overstatement(1 - left / total, bound, confidence, max(0.0, total - left - 2 * reach))


def is_refuted(found: Overstatement, stated: bool) -> bool:
    """Whether what was found refutes: a stated claim beyond chance, a default claim beyond the lines."""
    if stated:
        return found.bound > 0
    return found.bound > LINE and found.points > LEAST


def judge(
    claimed: Tensor | float, worst: Tensor, found: Overstatement, *, spoilt: str | None, doubts: list[str]
) -> Judgement:
    """The verdict.

    Args:
        claimed: as for :func:`overstatement`.
        worst: (N,) flags or scores of the worst case.
        found: what `overstatement` says.
        spoilt: a sentence where the set-up is wrong, because the clean accuracy is near chance or images mix.
        doubts: what speaks against the audit's own attacks; names of checks.
    """
    stated = isinstance(claimed, float)
    if spoilt:
        return Judgement("cannot judge", spoilt)
    if is_refuted(found, stated):
        line = "more than sampling error explains" if stated else f"more than the {100 * LINE:g} % that are allowed"
        return Judgement("refuted", f"The claim is overstated by at least {100 * found.bound:.1f} %, {line}.")
    value = claimed if isinstance(claimed, float) else float(claimed.double().mean())
    if not stated and value <= LEAST:
        reason = f"Plain PGD-40 itself leaves only {100 * value:.1f} %, so no robustness is claimed."
        return Judgement("not refuted", reason + _too_few(worst, found))
    if not is_refuted(overstatement(claimed, torch.zeros_like(worst), 1 - found.confidence), stated):
        return Judgement(
            "cannot judge",
            f"There are too few examples ({len(worst)}): even a witness for each would not refute the claim. Use more.",
        )
    if doubts:
        return Judgement(
            "cannot judge",
            "The attacks did not find enough witnesses, but that says little, because these checks cast doubt on the "
            f"attacks: {', '.join(doubts)}.",
        )
    reason = "The attacks did not find enough witnesses to refute the claim. That is no proof of robustness."
    return Judgement("not refuted", reason + _too_few(worst, found))


def _too_few(worst: Tensor, found: Overstatement) -> str:
    """A sentence where the interval of the worst case is wide: a claim that is far off would have passed as well."""
    left = Share.of(worst, found.confidence)
    if left.high - left.low <= 2 * COARSE:
        return ""
    return (
        f" With only {left.n} examples that says little: anything from {100 * left.low:.0f} to {100 * left.high:.0f} % "
        "may be left after these attacks, and so few examples refute only claims that are far off. Use more examples."
    )
