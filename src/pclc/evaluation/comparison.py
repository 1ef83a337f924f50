"""Evaluations put side by side: more attacks on the same examples, or two models example by example."""

import warnings
from dataclasses import dataclass

import torch

from pclc.attacks.types import Norm
from pclc.evaluation.result import Accuracy, Evaluation, Outcome
from pclc.evaluation.statistics import paired_test
from pclc.evaluation.traps import SetupWarning


@dataclass(frozen=True)
class Comparison:
    """Two models on the same examples.

    Attributes:
        first, second: their accuracies.
        only_first: examples that only the first gets right.
        only_second: examples that only the second gets right.
        p_value: of McNemar's exact test, two-sided: how often chance alone would make them differ this much.
    """

    first: Accuracy
    second: Accuracy
    only_first: int
    only_second: int
    p_value: float

    @property
    def difference(self) -> float:
        """The first accuracy minus the second."""
        return self.first.value - self.second.value

    def __str__(self) -> str:
        return (
            f"{self.first} against {self.second} on {self.first.n} examples: {self.only_first} only by the first, "
            f"{self.only_second} only by the second, exact paired p = {self.p_value:.3g}"
        )


def combine(*evaluations: Evaluation) -> Evaluation:
    """One evaluation with the attacks of all, which must be of the same model on the same examples.

    An attack with the same text and seed that occurs again is kept once, if its outcomes are the same.
    """
    if not evaluations:
        raise ValueError("Expected at least one evaluation, but got none.")
    first = evaluations[0]
    outcomes = list(first.outcomes)
    for other in evaluations[1:]:
        _check_same_examples(first, other)
        for name in ("model_hash", "eight_bit"):
            left, right = getattr(first.conditions, name), getattr(other.conditions, name)
            if left != right:
                raise ValueError(f"Expected evaluations with the same {name}, but got {left} and {right}.")
        if not torch.equal(first.clean, other.clean):
            raise ValueError("Expected evaluations of the same model, but their clean outcomes differ.")
        for outcome in other.outcomes:
            same = [o for o in outcomes if _what(o) == _what(outcome)]
            if not same:
                outcomes.append(outcome)
            elif not torch.equal(same[0].robust, outcome.robust):
                raise ValueError(f"Expected {outcome.attack} to come out the same in both, but its outcomes differ.")
    texts = tuple(dict.fromkeys(text for evaluation in evaluations for text in evaluation.warnings))
    seconds = sum(evaluation.seconds for evaluation in evaluations)
    return Evaluation(first.clean, first.index, tuple(outcomes), first.conditions, texts, seconds)


def _what(outcome: Outcome) -> tuple[object, ...]:
    return outcome.attack, outcome.norm, outcome.eps, outcome.seed, outcome.substitute


def compare(first: Evaluation, second: Evaluation, norm: Norm | None = None, eps: float | None = None) -> Comparison:
    """Compare two models in the worst case, example by example; with a budget, over the attacks inside it."""
    _check_same_examples(first, second)
    if bool(first.outcomes) != bool(second.outcomes):
        raise ValueError("Expected two evaluations with attacks, or two without, but got one of each.")
    if eps is None and set(first.budgets) != set(second.budgets):
        raise ValueError(
            "Expected evaluations with the same budgets, or a `norm` and an `eps` that both have, "
            f"but got {first.budgets} and {second.budgets}."
        )
    if first.conditions.eight_bit != second.conditions.eight_bit:
        raise ValueError("Expected evaluations with the same eight_bit, but only one was rounded.")
    faced, other = ({outcome.attack for outcome in each.within(norm, eps)} for each in (first, second))
    if faced != other:
        alone = [", ".join(sorted(attacks)) or "none" for attacks in (faced - other, other - faced)]
        warnings.warn(
            "The two models faced different attacks, which may explain part of the difference. "
            f"Only the first: {alone[0]}; only the second: {alone[1]}.",
            SetupWarning,
            stacklevel=2,
        )
    a, b = first.survivors(norm, eps), second.survivors(norm, eps)
    only_first, only_second = int((a & ~b).sum()), int((b & ~a).sum())
    return Comparison(Accuracy.of(a), Accuracy.of(b), only_first, only_second, paired_test(only_first, only_second))


def _check_same_examples(first: Evaluation, second: Evaluation) -> None:
    left, right = first.conditions.data_hash, second.conditions.data_hash
    if left != right:
        raise ValueError(f"Expected evaluations of the same examples, but their data have the hashes {left}, {right}.")
