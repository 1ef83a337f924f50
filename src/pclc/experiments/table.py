"""An experiment as a table: the published figure, ours over seeds, and what can be said about it."""

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import mean, stdev
from typing import Any

from pclc.analysis.claims import Finding
from pclc.analysis.verdict import Judgement, Verdict, judge, judge_contrast
from pclc.attacks import SPSA, AutoAttack
from pclc.evaluation.result import NO_EVIDENCE
from pclc.evaluation.statistics import SeedComparison, compare_over_seeds
from pclc.experiments.claims import Claim, load_claims, published_figures
from pclc.experiments.experiment import Cell, Experiment, load_experiment
from pclc.experiments.published import PublishedFigure
from pclc.experiments.store import Store
from pclc.experiments.values import Selection, mean_figures, row_of, row_values

_CONFUSION = re.compile(".+ from .+ to .+")  # too many for a table; claims and figures have them
_NOTICED = 0.0005  # share of gradients that are zero from which on it is told
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
        digits = _digits(self.row)
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
        digits = _digits(self.row)
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
        parts = [f"seeds {run}" if run else "no seed", f"not run: {missing}" if missing else "", self.summary(column)]
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
        return 3 if all(_digits(e.row) == 3 for e in self.entries if e.column == column and e.verdict) else 1

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


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the paper in words, held against our figures and against the paper's own.

    Attributes:
        claim: what is said.
        ours: what our figures say to it.
        paper: what the paper's own do.
        partial: not all that it is about has been run.
        rival: what our figures of cross-entropy say to it, where it is about PC-LC alone.
    """

    claim: Claim
    ours: Finding
    paper: Finding
    partial: bool
    rival: Finding | None = None

    def text(self) -> str:
        """What became of it."""
        word = {True: "holds", False: "does not hold", None: "not run"}[self.ours.holds]
        if self.partial and self.ours.of:
            word += " so far"
        counts = f" ({self.ours.held} of {self.ours.of} comparisons)" if self.ours.of else ""
        own = f"; in the paper's own figures {self.paper.held} of {self.paper.of}" if self.paper.of else ""
        rival = f"; for cross-entropy here {self.rival.held} of {self.rival.of}" if self.rival and self.rival.of else ""
        return f"{self.claim.name}: {word}{counts}{own}{rival}"


@dataclass(frozen=True)
class Table:
    """All of it, with the conditions under which it holds."""

    experiment: Experiment
    selection: Selection
    blocks: tuple[Block, ...]
    claims: tuple[JudgedClaim, ...]
    tuning: tuple[dict[str, Any], ...]
    runs: Mapping[str, str]  # conditions, and the columns that have them where there are several
    notes: tuple[str, ...]

    @property
    def conditions(self) -> tuple[str, ...]:
        """Under which all figures came about, with the columns where there are several."""
        return tuple(f"{text} ({columns})" if columns else text for text, columns in self.runs.items())

    @property
    def title(self) -> str:
        """What it is, and what makes it less than that."""
        limits = self.selection.limits
        label = f". SUBSET: {limits}; a trial, on which there are no verdicts" if limits else ""
        variant = "" if self.selection.variant == "paper" else f", variant {self.selection.variant}"
        return f"{self.experiment.name}{variant}: {self.experiment.title}{label}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "experiment": self.experiment.name,
            "title": self.title,
            "selection": asdict(self.selection),
            "limits": self.selection.limits,
            "blocks": [_block_dict(block) for block in self.blocks],
            "claims": [
                {
                    "name": judged.claim.name,
                    "source": judged.claim.source,
                    "text": judged.claim.text,
                    "reading": judged.claim.reading,
                    "holds": judged.ours.holds,
                    "partial": judged.partial,
                    "ours": asdict(judged.ours),
                    "paper": asdict(judged.paper),
                    "rival": judged.rival and asdict(judged.rival),
                }
                for judged in self.claims
            ],
            "tuning": list(self.tuning),
            "conditions": list(self.conditions),
            "notes": list(self.notes),
        }


def make_table(store: Store, experiment: Experiment, selection: Selection, choices: Mapping[str, int]) -> Table:
    """The table of what the store has; what is not there is shown as not run."""
    cells = selection.cells(experiment, choices)
    results = {cell.hash: result for cell in cells if (result := store.load(cell)) is not None}
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault(place_of(experiment, cell), []).append(cell)
    missing: dict[tuple[str, str], set[tuple[str, int]]] = {}  # by place, columns and seeds, also those not asked for
    for cell in [*cells, *replace(selection, seeds=None).cells(experiment, choices)]:
        if cell.hash not in results and store.load(cell) is None:
            missing.setdefault(place_of(experiment, cell), set()).add((cell.column, cell.training.config.seed))
    return Table(
        experiment,
        selection,
        tuple(
            _block(store, experiment, selection, place, missing.get(place, set()), group, results)
            for place, group in groups.items()
        ),
        judge_claims(store, experiment, selection, choices),
        tuple(_tuning_rows(store, experiment, selection, choices)),
        _all_conditions(experiment, cells, results),
        tuple(
            dict.fromkeys(f"{_label(experiment, cell)}: {text}" for cell in cells for text in _warnings(results, cell))
        ),
    )


def judge_claims(
    store: Store, experiment: Experiment, selection: Selection, choices: Mapping[str, int]
) -> tuple[JudgedClaim, ...]:
    """The paper's claims that are about this experiment; those about another one too are given its figures as well."""
    figures = mean_figures(store, experiment, selection.cells(experiment, choices))
    everything = replace(selection, datasets=None, columns=None, seeds=None)
    judged = []
    for claim in load_claims():
        about = {claim.settings.get(key) for key in ("experiment", "white_box")} - {None}
        if experiment.name not in about:
            continue
        needed, cells = dict(figures), everything.cells(experiment, choices)
        for name in about - {experiment.name}:
            other = load_experiment(str(name))
            needed |= mean_figures(store, other, selection.cells(other))
            cells += everything.cells(other)
        partial = any(claim.is_about(cell.training.dataset, cell.column) and store.load(cell) is None for cell in cells)
        same = claim.about_cross_entropy()
        rival = None if same is None else same.find(needed)
        judged.append(JudgedClaim(claim, claim.find(needed), claim.find(published_figures()), partial, rival))
    return tuple(judged)


def setting_text(setting: Mapping[str, Mapping[str, Any]]) -> str:
    """A setting of an arm in words.

    Example:
        >>> setting_text({"train": {"lr": 0.1}, "recipe": {"beta": 5.0}})
        'lr 0.1, beta 5.0'
    """
    return ", ".join(f"{key} {value}" for part in setting.values() for key, value in part.items())


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


def _block(
    store: Store,
    experiment: Experiment,
    selection: Selection,
    place: tuple[str, str],
    missing: set[tuple[str, int]],
    cells: Sequence[Cell],
    results: Mapping[str, Mapping[str, Any]],
) -> Block:
    columns = tuple(dict.fromkeys(cell.column for cell in cells))
    finished = {column: [c for c in cells if c.column == column and c.hash in results] for column in columns}
    values: dict[tuple[str, str], dict[int, float]] = {}
    rows = dict.fromkeys(["clean", *(attack.name for cell in cells for attack in cell.attacks)])
    for cell in cells:
        if cell.hash in results:
            for row, value in row_values(store, cell, results[cell.hash]).items():
                if not _CONFUSION.fullmatch(row):
                    values.setdefault((row, cell.column), {})[cell.training.config.seed] = value
                    rows.setdefault(row)
    first = {column: next(cell for cell in cells if cell.column == column) for column in columns}
    figures = {
        (row, column): experiment.figure(first[column], row_of(experiment.published, row))
        for row in rows
        for column in columns
    }
    judged = not selection.limits
    step = max((100 / results[cell.hash]["n"] for cell in cells if cell.hash in results), default=0.0)
    return Block(
        *place,
        columns,
        tuple(rows),
        tuple(
            Entry(*at, figure, values.get(at, {}), _verdict(figure, values.get(at, {})) if judged else None)
            for at, figure in figures.items()
        ),
        tuple(_contrasts(experiment, first, rows, figures, values, judged, step)),
        # Once each: in a trial with fewer epochs runs of several lengths are one.
        {column: tuple(dict.fromkeys(c.training.config.seed for c in own)) for column, own in finished.items()},
        {column: tuple(sorted(seed for name, seed in missing if name == column)) for column in columns},
        {
            column: {c.training.config.seed: results[c.hash]["audit"]["verdict"] for c in own if c.audit}
            for column, own in finished.items()
        },
        _zero_gradients(cells, results),
        {column: _robust(store, own) for column, own in finished.items()},
        step,
    )


def _zero_gradients(cells: Sequence[Cell], results: Mapping[str, Mapping[str, Any]]) -> dict[str, ZeroGradients]:
    """By column, where the most gradients were zero: of one attack by gradients of the model itself."""
    most: dict[str, ZeroGradients] = {}
    stuck: dict[str, dict[str, bool]] = {}
    for cell in cells:
        names = {
            attack.text: attack.name
            for attack in cell.attacks
            if not attack.transfer and not isinstance(attack.attack, AutoAttack | SPSA)
        }
        for row in results[cell.hash]["attacks"] if cell.hash in results else ():
            name, share, before = names.get(row["attack"]), row["zero_gradient_share"] or 0.0, most.get(cell.column)
            if name is None or row["transfer"]:
                continue
            as_many = row["correct"] > 0 and abs(share * results[cell.hash]["n"] - row["correct"]) < 0.5
            rows = stuck.setdefault(cell.column, {})
            rows[name] = as_many and rows.get(name, True)
            if share >= _NOTICED and (before is None or share > before.share):
                most[cell.column] = ZeroGradients(share, name, cell.training.config.seed)
    return {
        column: replace(found, stuck=tuple(name for name, always in stuck[column].items() if always))
        for column, found in most.items()
    }


def _robust(store: Store, cells: Sequence[Cell]) -> dict[int, tuple[float, float]]:
    """By seed, what the training measured on held-out images, or on its own: highest, and in the last epoch."""
    found = {}
    for cell in cells:
        epochs = store.epochs(cell.training)
        measured = [epoch.get("validation_robust_accuracy", epoch.get("train_robust_accuracy")) for epoch in epochs]
        course = [share for share in measured if isinstance(share, float)]
        if course:
            found[cell.training.config.seed] = max(course), course[-1]
    return found


def _verdict(figure: PublishedFigure | None, values: Mapping[int, float]) -> Verdict | None:
    if figure is None:
        return None
    return judge(figure.value, list(values.values()), rounding=figure.rounding, widest=figure.widest)


def _contrasts(
    experiment: Experiment,
    first: Mapping[str, Cell],
    rows: Mapping[str, None],
    figures: Mapping[tuple[str, str], PublishedFigure | None],
    values: Mapping[tuple[str, str], Mapping[int, float]],
    judged: bool,
    step: float,
) -> list[Contrast]:
    """Each column minus the baselines; columns that stand for the same one of the paper are not compared."""
    columns = list(first)
    contrasts = []
    baselines = [name for name in experiment.baselines or columns[:1] if name in columns]
    for i, baseline in enumerate(baselines):
        for column in columns:
            if column in baselines[: i + 1] or first[column].published_column == first[baseline].published_column:
                continue
            for row in rows:
                ours, theirs = (values.get((row, name), {}) for name in (column, baseline))
                seeds = sorted(ours.keys() & theirs.keys())
                one, other = figures[row, column], figures[row, baseline]
                both = None if one is None or other is None else (one.value, other.value)
                verdict = None
                if both and one and judged:
                    verdict = judge_contrast(both, (ours, theirs), rounding=one.rounding, widest=one.widest)
                pairs = [ours[seed] for seed in seeds], [theirs[seed] for seed in seeds]
                least = 0.0 if _digits(row) == 3 else step
                interval = compare_over_seeds(*pairs, step=least) if len(seeds) > 1 else None
                differences = {seed: ours[seed] - theirs[seed] for seed in seeds}
                published = both and both[0] - both[1]
                contrasts.append(Contrast(row, column, baseline, published, differences, verdict, interval))
    return contrasts


def _digits(row: str) -> int:
    """As many as the paper prints: accuracies in percent have one, gaps between probabilities three."""
    return 3 if row.endswith(" gap") else 1


def _judged(verdict: Verdict | None, digits: int) -> str:
    if verdict is None or verdict.judgement == "not run":
        return _NOTHING
    if not verdict.outside:
        return verdict.judgement
    word = "differs" if verdict.judgement == "differs" else f"{verdict.judgement}, yet outside:"
    return f"{word} {verdict.difference:+.{digits}f}"


def _tuning_rows(
    store: Store, experiment: Experiment, selection: Selection, choices: Mapping[str, int]
) -> list[dict[str, Any]]:
    """Every setting that was to be tried, also the losing ones."""
    rows = []
    for cell in selection.tuning_cells(experiment):
        result = store.load(cell)
        assert cell.setting is not None
        rows.append(
            {
                "column": cell.column,
                "setting": experiment.arms[cell.column].settings[cell.setting],
                "clean %": result and 100 * result["clean"] / result["n"],
                "robust %": result and 100 * result["attacks"][0]["correct"] / result["n"],
                "validation images": result and result["n"],
                "chosen": choices.get(cell.column) == cell.setting,
            }
        )
    return rows


def place_of(experiment: Experiment, cell: Cell) -> tuple[str, str]:
    """The block of a cell: data set and network; runs of other lengths in a study are blocks of their own."""
    model, epochs = cell.training.model, cell.training.config.epochs
    return cell.training.dataset, f"{model}, {epochs} epochs" if experiment.tuning else model


def _all_conditions(
    experiment: Experiment, cells: Sequence[Cell], results: Mapping[str, Mapping[str, Any]]
) -> dict[str, str]:
    """The conditions of all cells, with the columns that they are of where there are several."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for cell in cells:
        if cell.hash in results:
            places = found.setdefault(_conditions(results[cell.hash]), {})
            places.setdefault(", ".join(place_of(experiment, cell)), {}).setdefault(cell.column)
    if len(found) == 1:
        return dict.fromkeys(found, "")
    return {
        text: "; ".join(f"{place}: {', '.join(columns)}" for place, columns in places.items())
        for text, places in found.items()
    }


def _conditions(result: Mapping[str, Any]) -> str:
    training, about, versions = result["training"], result["conditions"], result["conditions"]["versions"]
    return (
        f"{result['n']} images; trained on {training['device']} in {training['precision']}, attacked on "
        f"{about['device']} in {about['precision']}; torch {versions['torch']}, pclc {versions['pclc']}, "
        f"code {result['code']}"
    )


def _label(experiment: Experiment, cell: Cell) -> str:
    return f"{' '.join(place_of(experiment, cell))} {cell.column} seed {cell.training.config.seed}"


def _warnings(results: Mapping[str, Mapping[str, Any]], cell: Cell) -> list[str]:
    """But those about zero gradients, which every attack has: the largest share stands with its column."""
    texts = results[cell.hash]["warnings"] if cell.hash in results else []
    return [text for text in texts if not text.endswith(NO_EVIDENCE)]


def _block_dict(block: Block) -> dict[str, Any]:
    content = asdict(block)
    content["remarks"] = list(block.remarks)
    content["summary"] = {column: block.summary(column) for column in block.columns}
    content["entries"] = [
        {
            "row": entry.row,
            "column": entry.column,
            "published": None if entry.published is None else entry.published.value,
            "remarks": [] if entry.published is None else [remark.text for remark in entry.published.remarks],
            "values": dict(entry.values),
            "verdict": entry.verdict and asdict(entry.verdict),
            "text": entry.text(),
        }
        for entry in block.entries
    ]
    for contrast, entry in zip(block.contrasts, content["contrasts"], strict=True):
        entry["text"] = contrast.text()
    return content
