"""Claims in words as predicates over figures: how many comparisons a claim makes, and in which it fails.

The same predicates judge our results and the paper's own tables. Figures are named by (experiment, data set, column,
row), rows by the attack and its parameter ("pgd 0.1"). Data sets and rows are chosen by patterns such as "pgd *". A
comparison is made only where both of its figures are there.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import wraps
from itertools import pairwise
from statistics import mean
from typing import Any

Figures = Mapping[tuple[str, str, str, str], float]
ANY = ("*",)
CHECKS: dict[str, "Callable[..., Finding]"] = {}

_Comparisons = Iterator[tuple[str, bool]]


@dataclass(frozen=True)
class Finding:
    """What became of a claim.

    Attributes:
        held: comparisons in which it holds.
        of: comparisons that could be made.
        share: of the comparisons that has to hold.
        exceptions: those that do not, in words.
    """

    held: int
    of: int
    share: float
    exceptions: tuple[str, ...]

    @property
    def holds(self) -> bool | None:
        """Whether enough comparisons hold; None where there was nothing to compare."""
        return self.held >= self.share * self.of if self.of else None


def _check(compare: Callable[..., _Comparisons]) -> Callable[..., Finding]:
    """A check from the comparisons that it makes, each in words and with whether it holds.

    All of them have to hold, or the `share` that every check can be given.
    """

    @wraps(compare)
    def find(figures: Figures, *, share: float = 1.0, **settings: Any) -> Finding:
        made = list(compare(figures, **settings))
        exceptions = tuple(text for text, holds in made if not holds)
        return Finding(len(made) - len(exceptions), len(made), share, exceptions)

    CHECKS[compare.__name__] = find
    return find


@_check
def above(
    figures: Figures,
    *,
    experiment: str,
    column: str,
    than: str,
    rows: Sequence[str] = ANY,
    datasets: Sequence[str] = ANY,
    within: float | None = None,
) -> _Comparisons:
    """A column is above another one in every row; with `within`, at most so far below it.

    Example:
        >>> figures = {("table1", "mnist", "pc-lc", "pgd 0.1"): 72.3, ("table1", "mnist", "ce", "pgd 0.1"): 49.0}
        >>> above(figures, experiment="table1", column="pc-lc", than="ce")
        Finding(held=1, of=1, share=1.0, exceptions=())
    """
    for place, one, other in _pairs(figures, experiment, column, than, rows, datasets):
        holds = one > other if within is None else one >= other - within
        yield f"{' '.join(place)}: {column} {one}, {than} {other}", holds


@_check
def gains_more(
    figures: Figures,
    *,
    experiment: str,
    column: str,
    than: str,
    rows: Sequence[str] = ANY,
    datasets: Sequence[str] = ANY,
    less_rows: Sequence[str] = ANY,
    less_datasets: Sequence[str] = ANY,
) -> _Comparisons:
    """A column gains over another one on average, and more in `rows` and `datasets` than in the `less_` ones.

    Where both are about the same data sets, on each of them.
    """
    mores, lesses = (
        list(_pairs(figures, experiment, column, than, *chosen))
        for chosen in ((rows, datasets), (less_rows, less_datasets))
    )
    # Which pairs belong together: None stands for all.
    names = [None] if [*datasets] != [*less_datasets] else list(dict.fromkeys(dataset for (dataset, _), _, _ in mores))
    for name in names:
        gains = [
            [one - other for (dataset, _), one, other in pairs if name in (None, dataset)] for pairs in (mores, lesses)
        ]
        if all(gains):
            more, less = map(mean, gains)
            where = f"{name}: " if name else ""
            yield f"{where}mean gain {more:.3g} and {less:.3g}", more > max(less, 0)


@_check
def limited(
    figures: Figures,
    *,
    experiment: str,
    column: str,
    least: float = -math.inf,
    most: float = math.inf,
    rows: Sequence[str] = ANY,
    datasets: Sequence[str] = ANY,
) -> _Comparisons:
    """Every figure is from `least` to `most`."""
    for place, value in _select(figures, experiment, column, rows, datasets).items():
        yield f"{' '.join(place)}: {value}", least <= value <= most


@_check
def iterative_stronger(figures: Figures, *, experiment: str, column: str) -> _Comparisons:
    """No iterative attack leaves more accuracy than FGSM with the same eps."""
    stronger = [(experiment, attack) for attack in ("bim", "pgd", "mim")]
    yield from _matched(figures, (experiment, "fgsm"), stronger, column)


@_check
def transfer_weaker(
    figures: Figures, *, experiment: str, white_box: str, column: str, attacks: Sequence[str]
) -> _Comparisons:
    """No attack by transfer, in `experiment`, leaves less accuracy than the same attack on the model in `white_box`."""
    for attack in attacks:
        yield from _matched(figures, (experiment, attack), [(white_box, attack)], column)


@_check
def falls_with_eps(
    figures: Figures, *, experiment: str, column: str, attacks: Sequence[str], datasets: Sequence[str] = ANY
) -> _Comparisons:
    """Accuracy does not rise from one eps to the next."""
    for attack in attacks:
        for dataset, series in _series(figures, experiment, column, f"{attack} *", datasets).items():
            for (low, before), (high, after) in pairwise(series):
                yield f"{dataset} {attack} {low} to {high}: {before} to {after}", before >= after


@_check
def rises_with_eps(
    figures: Figures, *, experiment: str, column: str, rows: str, datasets: Sequence[str] = ANY
) -> _Comparisons:
    """The mean over the upper half of the eps is above the mean over the lower half."""
    for dataset, series in _series(figures, experiment, column, rows, datasets).items():
        if len(series) > 1:
            half = len(series) // 2
            low, high = mean(value for _, value in series[:half]), mean(value for _, value in series[-half:])
            yield f"{dataset} {rows}: {low:.3g} to {high:.3g}", high > low


def _select(
    figures: Figures, experiment: str, column: str, rows: Sequence[str], datasets: Sequence[str]
) -> dict[tuple[str, str], float]:
    """The chosen figures by data set and row."""
    return {
        (dataset, row): value
        for (where, dataset, which, row), value in figures.items()
        if (where, which) == (experiment, column)
        and any(fnmatchcase(row, pattern) for pattern in rows)
        and any(fnmatchcase(dataset, pattern) for pattern in datasets)
    }


def _pairs(
    figures: Figures, experiment: str, column: str, than: str, rows: Sequence[str], datasets: Sequence[str]
) -> Iterator[tuple[tuple[str, str], float, float]]:
    others = _select(figures, experiment, than, rows, datasets)
    for place, value in _select(figures, experiment, column, rows, datasets).items():
        if place in others:
            yield place, value, others[place]


def _matched(
    figures: Figures, weaker: tuple[str, str], stronger: Sequence[tuple[str, str]], column: str
) -> _Comparisons:
    """Compare attacks, each as (experiment, name), with another one at every eps that both have."""
    experiment, name = weaker
    for (dataset, row), left in _select(figures, experiment, column, (f"{name} *",), ANY).items():
        eps = row.removeprefix(f"{name} ")
        for where, attack in stronger:
            other = figures.get((where, dataset, column, f"{attack} {eps}"))
            if other is not None:
                yield f"{dataset} {row}: {left}, {attack} {other}", other <= left


def _series(
    figures: Figures, experiment: str, column: str, rows: str, datasets: Sequence[str]
) -> dict[str, list[tuple[float, float]]]:
    """(eps, figure) in the order of eps, by data set; eps is the second word of the row."""
    series: dict[str, list[tuple[float, float]]] = {}
    for (dataset, row), value in _select(figures, experiment, column, (rows,), datasets).items():
        series.setdefault(dataset, []).append((float(row.split()[1]), value))
    return {dataset: sorted(points) for dataset, points in series.items()}
