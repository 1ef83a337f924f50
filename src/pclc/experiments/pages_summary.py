"""What the tables say together, in sentences made by counting; and where the paper leaves room, with what was tried."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from pclc.analysis.verdict import Verdict
from pclc.experiments.ambiguities import Ambiguity, ambiguity_table, load_ambiguities
from pclc.experiments.block import Block, Contrast, Entry, spread
from pclc.experiments.pages_findings import leads_over_ce
from pclc.experiments.pages_text import bullets, counted, difference, joined, listed, markdown_table, quoted
from pclc.experiments.table import Table

_LEFT = 0.05  # percent; less is shown as nothing
_ENOUGH = 1.0  # percent; half of less says nothing
_FEW = 3  # rows of another reading that are shown one by one
_LEGEND = """What is left of PC-LC at each eps, in %: the lowest figure of the paper's own attacks, in print and here,
then what standard AutoAttack leaves of it and of cross-entropy trained the same way. The gains are PC-LC minus
cross-entropy in points at equal seeds: mean ± standard deviation, with the 95 % interval of the mean. `+at` is the
paper's adversarial training. An experiment that is not a table of the paper takes another reading of one, or larger
budgets."""


@dataclass(frozen=True)
class _Place:
    """A column at one eps: what the paper's attacks leave of it, and what AutoAttack does.

    Attributes:
        experiment: name.
        dataset: name.
        eps: as the row has it.
        printed: the least that the paper's attacks leave, in print.
        ours: the least that they leave here.
        autoattack: what standard AutoAttack leaves.
        gain: under AutoAttack over cross-entropy trained the same way; None where there is no such pair.
        pgd: the gain under the paper's PGD.
        rival: what AutoAttack leaves of that cross-entropy, by seed.
    """

    experiment: str
    dataset: str
    eps: str
    printed: float | None
    ours: float | None
    autoattack: Entry
    gain: Contrast | None
    pgd: Contrast | None
    rival: Mapping[int, float]

    @property
    def is_half(self) -> bool | None:
        """Whether AutoAttack leaves less than half of what the paper's attacks leave; None where that is too little."""
        return mean(self.autoattack.values.values()) < self.ours / 2 if self.ours and self.ours >= _ENOUGH else None

    @property
    def left(self) -> tuple[list[float], list[float]]:
        """What AutoAttack leaves of cross-entropy and of this column: of the seeds that are compared, if there are."""
        if self.gain is None:
            return [], list(self.autoattack.values.values())
        ce, own = ([values[seed] for seed in self.gain.differences] for values in (self.rival, self.autoattack.values))
        return ce, own

    @property
    def told(self) -> str:
        """Which of the two AutoAttack leaves more of, over seeds; "" where there are not two."""
        if self.gain is None:
            return ""
        if max(map(mean, self.left)) < _LEFT:
            return "nothing is left"
        interval = self.gain.interval
        if interval is None or interval.interval.low <= 0 <= interval.interval.high:
            return "cannot be told"
        return "ahead" if interval.interval.low > 0 else "behind"


def summary_section(tables: Sequence[Table]) -> str:
    """In short: how much was reproduced, which claims hold, and what AutoAttack leaves."""
    # Several experiments may hold readings against the same figures: they count once, for the table they are of.
    own_first = sorted(tables, key=_is_another_reading)
    figures: dict[tuple[str | None, ...], tuple[Table, Block, Entry]] = {}
    differences: dict[tuple[str | None, ...], tuple[str, Verdict | None]] = {}
    for table in own_first:
        for block in table.blocks:
            place, entries = (table.experiment.published, block.dataset), _published(block)
            for entry in entries:
                figures.setdefault((*place, entry.column, entry.row), (table, block, entry))
            for contrast in block.contrasts:
                if contrast.verdict and contrast.column in {entry.column for entry in entries}:
                    key = (*place, contrast.column, contrast.baseline, contrast.row)
                    differences.setdefault(key, (contrast.row, contrast.verdict))
    verdicts, contrasts = list(figures.values()), list(differences.values())
    limits = tables[0].selection.limits
    lines = [f"**A trial, whose figures mean nothing**: {limits}."] if limits else []
    places = _places(tables, "pc-lc")
    lines += [f"**Is the robustness there?** {' '.join(said)}" for said in [_truth_sentences(tables, places)] if said]
    if verdicts:
        lines.append(
            f"**Are the figures reproduced?** Of {len(verdicts)} published figures "
            f"{_counts([(e.row, e.verdict) for _, _, e in verdicts])}. Of {len(contrasts)} published differences "
            f"between losses {_counts(contrasts)}. A figure that several tables print counts in each."
        )
    lines += [f"**Do the paper's claims in words hold?** {' '.join(said)}" for said in [_said(tables)] if said]
    lines += [f"**What was not run?** {said}." for said in [_not_run(tables)] if said]
    ran = any(block.has_run for table in tables for block in table.blocks)
    parts = [bullets(lines) if ran else "Nothing has been run yet."]
    if places:
        parts += [_LEGEND, markdown_table([_place_row(place) for place in places])]
    counts = list(_count_rows(verdicts))
    if counts:
        parts += [
            "What became of the published figures, by table and column: *outside* counts those that differ or are "
            "underpowered, yet outside; *cannot be told* the other underpowered ones; *points off* is how far our "
            "figures are from the published ones on average ([the verdicts](#what-is-said-about-a-figure)).",
            markdown_table(counts),
        ]
    return "\n\n".join(parts)


def _said(tables: Sequence[Table]) -> list[str]:
    """What became of the paper's claims; nothing where none is about these tables."""
    claims = {judged.claim.name: judged for table in tables for judged in table.claims}
    if not claims:
        return []
    outcomes = Counter(judged.ours.holds for judged in claims.values())
    partial = sum(judged.partial and judged.ours.holds is not None for judged in claims.values())
    failed = {name: judged.paper.holds for name, judged in claims.items() if judged.ours.holds is False}
    here, both = ([name for name, own in failed.items() if (own is False) is too] for too in (False, True))
    return [
        f"Of {len(claims)} claims {outcomes[True]} hold here, {outcomes[False]} do not, and {outcomes[None]} were not "
        f"run; {partial} of the {len(claims) - outcomes[None]} verdicts are provisional, since only a part was run. By "
        f"the paper's own figures {sum(judged.paper.holds is False for judged in claims.values())} do not hold.",
        f"These fail here alone: {quoted(here)}. These fail here and by the paper's own figures: {quoted(both)}.",
    ]


def _not_run(tables: Sequence[Table]) -> str:
    """The data sets of which no cell is finished, and those of which none is in some experiments."""
    ran = {block.dataset for table in tables for block in table.blocks if block.has_run}
    missing: dict[str, list[str]] = {}
    for table in tables:
        there = {block.dataset for block in table.blocks if block.has_run}
        for dataset in dict.fromkeys(block.dataset for block in table.blocks if block.dataset not in there):
            missing.setdefault(dataset, []).append(table.experiment.name)
    nothing = [dataset for dataset in missing if dataset not in ran]
    parts = [f"Everything on {joined(nothing)}"] if nothing else []
    return "; ".join([*parts, *(f"on {name}: {listed(which)}" for name, which in missing.items() if name in ran)])


def headline_section(tables: Sequence[Table], study: Sequence[Block]) -> str:
    """What PC gives alone and inside adversarial training, in two sentences."""
    alone: dict[str, str] = {}
    for place in _places(tables, "pc-lc"):
        if place.experiment == "table1" and place.gain is not None and place.gain.interval is not None:
            lost = place.told == "nothing is left"
            number = "nothing is left of either" if lost else difference(place.gain.interval)
            seeds = counted(len(place.gain.differences), "seed")
            alone.setdefault(place.dataset, f"{place.dataset} at {place.eps}: {number}, {seeds}")
    return "In points under standard AutoAttack, with 95 % intervals over seeds:\n\n" + bullets(
        [
            "**alone**, PC-LC minus cross-entropy, both trained as in the paper: "
            f"{'; '.join(alone.values()) or 'not run with two seeds'}.",
            "**inside adversarial training** at 8/255, cross-entropy with PC minus cross-entropy, each with settings "
            f"chosen on held-out images: {leads_over_ce(study) or 'not run with two seeds yet'}.",
        ]
    )


def ambiguities_section(tables: Sequence[Table]) -> str:
    """The table of what the paper leaves open, with what the other choice gave where that was run."""
    found = {entry.name: text for entry in load_ambiguities() if (text := "; ".join(_tried(entry, tables)))}
    return ambiguity_table(found)


def _tried(entry: Ambiguity, tables: Sequence[Table]) -> Iterator[str]:
    names = re.findall(r"`([^`]+)`", entry.measured_by)
    for table in tables:
        if not re.search(rf"\b{table.experiment.name}\b", entry.measured_by):
            continue
        for block in table.blocks:
            found = {column: block.distance(column) for column in block.columns if not names or column in names}
            near = sorted((distance, column) for column, distance in found.items() if distance is not None)
            if near:
                distances = ", ".join(f"`{column}` {distance:.{block.digits(column)}f}" for distance, column in near)
                unit = "points" if block.digits(near[0][1]) == 1 else "probability"
                yield f"{table.experiment.name}, {block.dataset}, {unit} from the published figures: {distances}"
            stated = _stated(table, block, tables)
            rows = [row for row in block.rows if any(row.startswith(name) for name in names)]
            entries = [e for e in block.entries if e.row in rows and e.values]
            moved = [(entry, _move(entry, stated.get((entry.row, entry.column), {}))) for entry in entries]
            if len(rows) > _FEW and stated:
                yield from (f"{table.experiment.name}, {block.dataset}, {text}" for text in _by_column(moved))
                continue
            for row in rows:
                figures = ", ".join(_with_move(entry, move) for entry, move in moved if entry.row == row)
                if figures:
                    yield f"{table.experiment.name}, {block.dataset}, `{row}`: {figures}"


def _stated(table: Table, block: Block, tables: Sequence[Table]) -> dict[tuple[str, str], Mapping[int, float]]:
    """By row and column, what the reading that we take gives where this table has another one.

    The network may be what is read otherwise; a table of the paper has one for each data set.
    """
    own = [t for t in tables if _is_another_reading(table) and t.experiment.name == table.experiment.published]
    same = [b for t in own for b in t.blocks if b.dataset == block.dataset]
    return {(e.row, e.column): e.values for b in same for e in b.entries}


def _move(entry: Entry, stated: Mapping[int, float]) -> float | None:
    """By how much another reading moves our figure at equal seeds; None where they have none in common."""
    moves = [value - stated[seed] for seed, value in entry.values.items() if seed in stated]
    return mean(moves) if moves else None


def _with_move(entry: Entry, move: float | None) -> str:
    text = f"{entry.column} {spread(list(entry.values.values()))}"
    return text if move is None else f"{text}, moved by {move:+z.1f}"


def _by_column(moved: Sequence[tuple[Entry, float | None]]) -> Iterator[str]:
    """Of many figures the mean, the least and the largest."""
    columns: dict[str, list[float]] = {}
    for entry, move in moved:
        if move is not None:
            columns.setdefault(entry.column, []).append(move)
    for column, moves in columns.items():
        ends = f"{min(moves):+z.1f} to {max(moves):+z.1f}"
        yield f"{column}: {counted(len(moves), 'figure')} moved by {mean(moves):+z.1f} on average ({ends})"


def _is_another_reading(table: Table) -> bool:
    """Whether it holds something else than the paper states against a table of the paper."""
    published = table.experiment.published
    return published is not None and table.experiment.name.removesuffix("-smoke") != published


def _published(block: Block) -> list[Entry]:
    """The entries that are judged; where several columns stand for one of the paper, the one of its name."""
    return [e for e in block.entries if e.verdict is not None and e.published and e.published.column == e.column]


def _outcome(verdict: Verdict) -> str:
    """As a reader asks: a figure outside an interval is outside, however wide that is."""
    if verdict.judgement == "underpowered":
        return "outside" if verdict.outside else "cannot be told"
    return {"differs": "outside"}.get(verdict.judgement, verdict.judgement)


def _counts(verdicts: Sequence[tuple[str, Verdict | None]]) -> str:
    found = [(row, _outcome(verdict)) for row, verdict in verdicts if verdict is not None]
    counts = Counter(outcome for _, outcome in found)
    clean = found.count(("clean", "reproduced"))
    return (
        f"{counts.total() - counts['not run']} were run: {counts['reproduced']} are reproduced ({clean} of them clean "
        f"accuracies), {counts['outside']} lie outside what our seeds allow, and {counts['cannot be told']} cannot be "
        "told because our seeds are few or scatter"
    )


def _count_rows(verdicts: Sequence[tuple[Table, Block, Entry]]) -> Iterator[dict[str, str]]:
    places: dict[tuple[str, str], tuple[Block, Counter[str]]] = {}
    for table, block, entry in verdicts:
        assert entry.verdict is not None
        place = f"{table.experiment.name}, {block.dataset}", entry.column
        places.setdefault(place, (block, Counter()))[1][_outcome(entry.verdict)] += 1
    for (where, column), (block, counts) in places.items():
        distance = block.distance(column)
        if distance is not None:
            outcomes = {word: str(counts[word]) for word in ("reproduced", "outside", "cannot be told", "not run")}
            about = {"where": where, "column": column, "figures": str(counts.total()), **outcomes}
            yield about | {"points off": f"{distance:.{block.digits(column)}f}"}


def _places(tables: Sequence[Table], loss: str) -> list[_Place]:
    """For each model of a loss and each eps that AutoAttack was run at; a model of several tables once."""
    found: dict[tuple[str, ...], _Place] = {}
    for table in tables:
        # Those of another reading are other models.
        whose = table.experiment.name if _is_another_reading(table) else ""
        for block in table.blocks:
            for entry in block.entries:
                attack, _, eps = entry.row.partition(" ")
                if attack == "autoattack" and entry.values and entry.column.startswith(loss):
                    key = whose, block.dataset, block.model, entry.column, eps
                    place = _place(table, block, entry, eps)
                    if key not in found or (found[key].gain is None and place.gain is not None):
                        found[key] = place
    return list(found.values())


def _place(table: Table, block: Block, entry: Entry, eps: str) -> _Place:
    same = [e for e in block.entries if e.column == entry.column and e.published and e.values]
    beside = [e for e in same if e.row.endswith(f" {eps}")]
    rival = entry.column.replace("pc-lc", "ce", 1)
    pairs = {
        c.row: c
        for c in block.contrasts
        if table.experiment.published and rival != entry.column and (c.column, c.baseline) == (entry.column, rival)
    }
    gain, pgd = pairs.get(entry.row), pairs.get(f"pgd {eps}")
    has_pair = gain is not None and bool(gain.differences)
    return _Place(
        table.experiment.name,
        block.dataset,
        eps,
        min((e.published.value for e in beside if e.published), default=None),
        min((mean(e.values.values()) for e in beside), default=None),
        entry,
        gain if has_pair else None,
        pgd if has_pair and pgd is not None and pgd.published is not None else None,
        block.entry(entry.row, rival).values if has_pair else {},
    )


def _place_row(place: _Place) -> dict[str, str]:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    ce, own = place.left
    printed, here, _ = place.pgd.shown() if place.pgd else ("-", "-", "-")
    return {
        "experiment, data, loss": f"{place.experiment}, {place.dataset}, {place.autoattack.column}",
        "eps": place.eps,
        "seeds": str(len(own)),
        "lowest in print": number(place.printed),
        "lowest here": number(place.ours),
        "AutoAttack leaves": spread(own),
        "and of cross-entropy": spread(ce) if ce else "-",
        "gain under PGD, in print": printed,
        "gain under PGD, here": here,
        "gain under AutoAttack": place.gain.text() if place.gain else "-",
    }


def _truth_sentences(tables: Sequence[Table], places: Sequence[_Place]) -> list[str]:
    """How far the paper's attacks are from AutoAttack, of both losses, and whether that tells the losses apart."""
    lines = []
    halves = []
    for name, found in (("PC-LC", places), ("cross-entropy", _places(tables, "ce"))):
        are = [place.is_half for place in found if place.is_half is not None]
        halves += [f"for {name} in {sum(are)} of {len(are)} places"] if are else []
    if halves:
        lines.append(
            "Standard AutoAttack leaves less than half of what the paper's own attacks leave here at the same eps: "
            f"{' and '.join(halves)} where these leave at least {_ENOUGH:.0f} %."
        )
    told: dict[str, list[str]] = {}
    for place in places:
        told.setdefault(place.told, []).append(f"{place.experiment}, {place.dataset} at {place.eps}")
    told.pop("", None)
    if told:
        ahead, behind = (
            f"{len(told[which])} ({'; '.join(told[which])})" if which in told else "0" for which in ("ahead", "behind")
        )
        unknown, nothing = (len(told.get(which, [])) for which in ("cannot be told", "nothing is left"))
        lines.append(
            f"Of {sum(map(len, told.values()))} comparisons with cross-entropy trained the same way, PC-LC is ahead "
            f"under AutoAttack in {ahead} and behind in {behind}; in {unknown} our seeds cannot tell, and in {nothing} "
            "nothing is left of either. Each goes by its own 95 % interval, so that a few may err."
        )
    return lines
