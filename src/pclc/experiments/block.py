"""The figures of one data set and network, each beside the published one, and what is said of them in words."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean, stdev

from pclc.analysis.verdict import Judgement, Verdict
from pclc.evaluation.statistics import SeedComparison
from pclc.experiments.published import PublishedFigure

_APART = 30.0  # points between seeds from which on each is told
_NOTHING = "-"
_JUDGEMENTS: tuple[Judgement, ...] = "reproduced", "differs", "underpowered"  # those of figures that were run


class _Shown(ABC):
    """What stands in a cell of a table."""

    @abstractmethod
    def shown(self) -> tuple[str, str, str]:
        """Published, ours and the verdict."""

    def text(self) -> str:
        """What there is of these, in one cell."""
        return " | ".join(part for part in self.shown() if part != _NOTHING)


@dataclass(frozen=True)
class Entry(_Shown):
    """One figure of a table.

    Attributes:
        row: "clean", an attack, a worst case, or what an analysis gives.
        column: the arm.
        published: the paper's figure, where it has one.
        values: ours by seed.
        verdict: None where nothing is published, or where fewer images or epochs make it another experiment.
    """

    row: str
    column: str
    published: PublishedFigure | None
    values: Mapping[int, float]
    verdict: Verdict | None

    def shown(self) -> tuple[str, str, str]:
        """Published (with a mark where there is something to know about it), ours and the verdict."""
        digits = digits_of(self.row)
        ours = spread(list(self.values.values()), digits)
        if self.published is None:
            return _NOTHING, ours, _NOTHING
        mark = "".join(remark.mark for remark in self.published.remarks)
        return f"{self.published.value:.{digits}f}{mark}", ours, _judged(self.verdict, digits)


@dataclass(frozen=True)
class Contrast(_Shown):
    """A column minus another one at equal seeds.

    Attributes:
        row: as in :class:`Entry`.
        column: the first.
        baseline: the second.
        published: the paper's difference.
        differences: ours by seed.
        verdict: on the published difference.
        interval: of our mean difference over seeds, with at least two of them.
    """

    row: str
    column: str
    baseline: str
    published: float | None
    differences: Mapping[int, float]
    verdict: Verdict | None
    interval: SeedComparison | None

    def shown(self) -> tuple[str, str, str]:
        """Published and our difference with its 95 % interval over seeds, and the verdict."""
        digits = digits_of(self.row)
        ours = spread(list(self.differences.values()), digits, sign="+")
        if self.interval is not None:
            ours += f" ({bounds(self.interval.interval.low, self.interval.interval.high, digits)})"
        if self.published is None:
            return _NOTHING, ours, _NOTHING
        return f"{self.published:+.{digits}f}", ours, _judged(self.verdict, digits)


@dataclass(frozen=True)
class ZeroGradients:
    """The largest share of the gradients of an attack that were exactly zero, and where that was.

    Attributes:
        share: the largest.
        row: of which attack.
        seed: of which model.
        stuck: rows that leave, with every seed, just as many images as have no gradient.
    """

    share: float
    row: str
    seed: int
    stuck: tuple[str, ...] = ()

    def __str__(self) -> str:
        text = f"up to {100 * self.share:.1f} % zero gradients, AutoAttack aside ({self.row}, seed {self.seed})"
        attacks: dict[str, list[str]] = {}
        for row in self.stuck:
            name, _, eps = row.rpartition(" ")
            attacks.setdefault(name, []).append(eps)
        left = ", ".join(f"{name} ({', '.join(found)})" for name, found in attacks.items())
        return f"{text}; just as many images as have no gradient survive {left}" if left else text


@dataclass(frozen=True)
class Block:
    """The figures of one data set and network."""

    dataset: str
    model: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    entries: tuple[Entry, ...]
    contrasts: tuple[Contrast, ...]
    seeds: Mapping[str, tuple[int, ...]]  # by column, those that were run
    not_run: Mapping[str, tuple[int, ...]]
    audits: Mapping[str, Mapping[int, str]]  # by column, the verdicts of those that were audited
    zero_gradients: Mapping[str, ZeroGradients]  # by column that has some
    robust: Mapping[str, Mapping[int, tuple[float, float]]]  # by column and seed, in training: highest, and at its end
    step: float  # points by which one image changes an accuracy; 0 where nothing was run

    @property
    def has_run(self) -> bool:
        """Whether any cell is finished."""
        return any(self.seeds.values())

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to know about the published figures with a mark, each with its mark."""
        published = [entry.published for entry in self.entries if entry.published is not None]
        return tuple(dict.fromkeys(f"{remark.mark} {remark.text}" for figure in published for remark in figure.remarks))

    def entry(self, row: str, column: str) -> Entry:
        """The figure of a row and a column."""
        return next(entry for entry in self.entries if (entry.row, entry.column) == (row, column))

    def audited(self, column: str) -> str:
        """What the audits of a column say, over seeds, and how many of those that were run have none."""
        counts, run = Counter(self.audits[column].values()), len(self.seeds[column])
        parts = [f"{verdict} ({count} of {counts.total()})" for verdict, count in counts.items()]
        if counts.total() < run:
            parts.append(f"{run - counts.total()} of {run} seeds not audited")
        return ", ".join(parts) or "not run"

    def about(self, column: str) -> str:
        """Which seeds a column has, how it compares with the published one, and what makes it less than it seems."""
        run, missing = (", ".join(map(str, sorted(seeds[column]))) for seeds in (self.seeds, self.not_run))
        parts = [f"seeds {run}" if run else "no seeds", f"not run: {missing}" if missing else "", self.summary(column)]
        parts += [str(self.zero_gradients.get(column, "")), self.apart(column), self.watched(column)]
        return f"{column}: " + "; ".join(part for part in parts if part)

    def apart(self, column: str) -> str:
        """Where seeds differ so much that a mean and a deviation do not tell what happened, what each gave."""
        entries = [entry for entry in self.entries if entry.column == column and len(entry.values) > 1]
        if not entries:
            return ""
        widest = max(entries, key=lambda entry: max(entry.values.values()) - min(entry.values.values()))
        values = [widest.values[seed] for seed in sorted(widest.values)]
        if max(values) - min(values) < _APART:
            return ""
        return f"seeds far apart ({widest.row}: {', '.join(f'{value:.1f}' for value in values)})"

    def watched(self, column: str) -> str:
        """What adversarial training came to, by seed; "" where it is not kept or not measured."""
        values = ", ".join(
            f"{100 * best:.1f}/{100 * last:.1f}" for _, (best, last) in sorted(self.robust[column].items())
        )
        return f"% under PGD-10 in training, best/last epoch by seed: {values}" if values else ""

    def distance(self, column: str) -> float | None:
        """How far a column is from the published one on average over its rows; None where nothing was judged."""
        found = [verdict.difference for verdict in self._verdicts(column) if verdict.difference is not None]
        return mean(map(abs, found)) if found else None

    def digits(self, column: str) -> int:
        """Of that distance: one in points, three between probabilities."""
        return 3 if all(digits_of(e.row) == 3 for e in self.entries if e.column == column and e.verdict) else 1

    def summary(self, column: str) -> str:
        """How a column compares with the published one over all its rows; empty where nothing was judged."""
        distance, digits = self.distance(column), self.digits(column)
        if distance is None:
            return ""
        counts = Counter(verdict.judgement for verdict in self._verdicts(column))
        words = ", ".join(f"{n} {word}" for word in _JUDGEMENTS if (n := counts[word]))
        outside = sum(verdict.outside for verdict in self._verdicts(column) if verdict.judgement == "underpowered")
        words += f" ({outside} of them outside the interval)" if outside else ""
        return f"{words}; {distance:.{digits}f}{' points' if digits == 1 else ''} off on average"

    def _verdicts(self, column: str) -> list[Verdict]:
        return [entry.verdict for entry in self.entries if entry.column == column and entry.verdict is not None]


def spread(values: Sequence[float], digits: int = 1, sign: str = "") -> str:
    """Mean and sample standard deviation, with the number of seeds where it is one.

    Example:
        >>> spread([45.0, 45.6, 46.2]), spread([45.0]), spread([])
        ('45.6 ± 0.6', '45.0 (1 seed)', 'not run')
    """
    if not values:
        return "not run"
    centre = f"{mean(values):{sign}z.{digits}f}"
    return f"{centre} ± {stdev(values):.{digits}f}" if len(values) > 1 else f"{centre} (1 seed)"


def bounds(low: float, high: float, digits: int = 1) -> str:
    """Of an interval, with as many digits more as it takes to see on which side of zero it lies.

    Example:
        >>> bounds(-0.02, 3.0), bounds(0.01, 0.04), bounds(-0.02, 0.02)
        ('-0.02 to +3.0', '+0.01 to +0.04', '+0.0 to +0.0')
    """
    both = not round(low, digits) and not round(high, digits) and low <= 0 <= high

    def text(value: float) -> str:
        shown = digits
        while value and not both and not round(value, shown) and shown < 9:
            shown += 1
        return f"{value:+z.{shown}f}"

    return f"{text(low)} to {text(high)}"


def digits_of(row: str) -> int:
    """As many as the paper prints: accuracies in percent have one, gaps between probabilities three."""
    return 3 if row.endswith(" gap") else 1


def _judged(verdict: Verdict | None, digits: int) -> str:
    if verdict is None or verdict.judgement == "not run":
        return _NOTHING
    if not verdict.outside:
        return verdict.judgement
    word = "differs" if verdict.judgement == "differs" else f"{verdict.judgement}, yet outside:"
    return f"{word} {verdict.difference:+.{digits}f}"
