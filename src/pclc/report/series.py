"""Outcomes as lines over eps: which attacks belong together, and what they are called."""

import re
import warnings
from collections import Counter
from dataclasses import fields
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks import PGD, Attack, UnreachableWarning, parse_attack
from pclc.attacks.types import Norm
from pclc.evaluation import Accuracy, Evaluation, Outcome

WORST = "worst case"
_SHORT = {"CarliniWagner": "C&W", "APGDTargeted": "APGD-T", "ProbabilityMargin": "PMA"}


def accuracy_of(flags: Tensor) -> Accuracy:
    """The share of (N,) flags; the interval of a count is computed once, because a page has it in many places."""
    return _accuracy(int(flags.sum()), len(flags))


@cache
def _accuracy(correct: int, n: int) -> Accuracy:
    return Accuracy.of(torch.arange(n) < correct)


class Point(NamedTuple):
    """One attack at one eps."""

    eps: float
    accuracy: Accuracy


class Series(NamedTuple):
    """One kind of attack over eps, ascending; eps 0 is the clean images."""

    label: str
    norm: Norm
    points: tuple[Point, ...]


def read_attack(text: str) -> Attack | None:
    """The attack that a text describes; None for callables of others and for transfers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreachableWarning)  # whoever ran it was told
            return parse_attack(text)
    except ValueError:
        return None


def label_of(text: str) -> str:
    """A short name of an attack, without its eps and its step.

    Example:
        >>> label_of("pgd(eps=0.1, alpha=0.01, steps=40)"), label_of('apgd(eps=0.1, steps=100, objective="dlr")')
        ('PGD-40', 'APGD-100, dlr')
        >>> label_of("transfer(fgsm(eps=0.1), substitute=ce)")
        'FGSM from ce'
    """
    attack = read_attack(text)
    if attack is None:
        transfer = re.fullmatch(r"transfer\((.+), substitute=(.+)\)", text)
        return f"{label_of(transfer[1])} from {transfer[2]}" if transfer else text
    kind = type(attack).__name__
    name = _SHORT.get(kind, kind)
    usual = {field.name: field.default for field in fields(attack)}
    own = {name: getattr(attack, name) for name in usual}
    words = [f"{name}-{own['steps']}" if "steps" in own else name]
    if own.get("objective") != usual.get("objective"):
        words.append(str(own["objective"]))
    if own.get("restarts", 1) > 1:
        words.append(f"{own['restarts']} starts")
    if isinstance(inner := own.get("attack"), Attack):
        words.append(label_of(str(inner)))
    return ", ".join(words)


def series_of(evaluation: Evaluation) -> list[Series]:
    """The lines of an evaluation, the worst case last, each norm for itself.

    Attacks without an eps are in none of them. Two attacks that would share a name at the same eps get their texts.
    """
    placed = [outcome for outcome in evaluation.outcomes if outcome.norm is not None and outcome.eps is not None]
    counts = Counter((label_of(outcome.attack), outcome.norm, outcome.eps) for outcome in placed)
    ambiguous = {label for (label, _, _), count in counts.items() if count > 1}
    lines: dict[tuple[Norm, str], list[Outcome]] = {}
    for outcome in placed:
        assert outcome.norm is not None
        label = label_of(outcome.attack)
        lines.setdefault((outcome.norm, outcome.attack if label in ambiguous else label), []).append(outcome)
    clean = Point(0.0, accuracy_of(evaluation.clean))
    found = []
    for (norm, label), outcomes in lines.items():
        points = [Point(float(outcome.eps or 0), accuracy_of(outcome.robust)) for outcome in outcomes]
        found.append(Series(label, norm, (clean, *sorted(points, key=lambda point: point.eps))))
    for norm in dict.fromkeys(norm for norm, _ in lines):
        radii = sorted({float(outcome.eps or 0) for outcome in placed if outcome.norm == norm})
        worst = (Point(eps, accuracy_of(evaluation.survivors(norm, eps))) for eps in radii)
        found.append(Series(WORST, norm, (clean, *worst)))
    return found


def plain_pgd(evaluation: Evaluation, norm: Norm, eps: float) -> Outcome | None:
    """PGD on cross-entropy at this budget, what most papers report; of several the one with most steps."""
    found = []
    for outcome in evaluation.outcomes:
        attack = read_attack(outcome.attack) if (outcome.norm, outcome.eps) == (norm, eps) else None
        if isinstance(attack, PGD) and attack.objective == "ce" and attack.restarts == 1:
            found.append((attack.steps, outcome))
    return max(found, key=lambda pair: pair[0])[1] if found else None


def headline_budget(evaluations: list[Evaluation]) -> tuple[Norm, float] | None:
    """The budget that a summary is about: the middle one of those that all evaluations share, or of all."""
    budgets = [{(norm, eps) for norm, eps in found.budgets if norm and eps} for found in evaluations if found.outcomes]
    if not budgets:
        return None
    shared = set.intersection(*budgets) or set.union(*budgets)
    norm = "Linf" if any(norm == "Linf" for norm, _ in shared) else "L2"
    radii = sorted(eps for other, eps in shared if other == norm and eps is not None)
    return (norm, radii[(len(radii) - 1) // 2]) if radii else None  # type: ignore[return-value]
