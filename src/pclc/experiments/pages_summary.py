"""What the tables say together, in sentences made by counting; and where the paper leaves room, with what was tried."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from pclc.analysis.verdict import Verdict
from pclc.experiments.ambiguities import Ambiguity, ambiguity_table, load_ambiguities
from pclc.experiments.pages_findings import leads_over_ce
from pclc.experiments.pages_text import bullets, counted, difference, markdown_table, quoted
from pclc.experiments.table import Block, Contrast, Entry, Table, spread

_LEFT = 0.05  # percent; less is shown as nothing
_ENOUGH = 1.0  # percent; half of less says nothing
_FEW = 3  # rows of another reading that are shown one by one


@dataclass(frozen=True)
class _Truth:
    """A model at one eps: what the paper's attacks leave, in print and here, and what is left."""

    experiment: str
    dataset: str
    column: str
    eps: str
    published: float | None
    ours: float | None
    autoattack: Entry
    worst_case: Entry | None

    @property
    def is_half(self) -> bool | None:
        """Whether AutoAttack leaves less than half of what the paper's attacks leave; None where that is too little."""
        return mean(self.autoattack.values.values()) < self.ours / 2 if self.ours and self.ours >= _ENOUGH else None


@dataclass(frozen=True)
class _Gain:
    """PC-LC minus cross-entropy trained the same way, at one eps."""

    experiment: str
    dataset: str
    eps: str
    pgd: Contrast | None
    autoattack: Contrast
    left: tuple[float, float]  # mean accuracies of cross-entropy and PC-LC under AutoAttack

    @property
    def where(self) -> str:
        """Experiment and data set."""
        return f"{self.experiment}, {self.dataset}"

    @property
    def told(self) -> str:
        """Which of the two AutoAttack leaves more of, over seeds."""
        if max(self.left) < _LEFT:
            return "nothing is left"
        interval = self.autoattack.interval
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
    lines += [f"**Is the robustness there?** {' '.join(said)}" for said in [_truth_sentences(tables)] if said]
    if verdicts:
        lines.append(
            f"**Are the figures reproduced?** Of {len(verdicts)} published figures "
            f"{_counts([(e.row, e.verdict) for _, _, e in verdicts])}. What several tables print counts in each. "
            f"Of {len(contrasts)} published differences between losses {_counts(contrasts)}."
        )
    lines += [f"**Does what the paper says in words hold?** {' '.join(said)}" for said in [_said(tables)] if said]
    not_run = [f"{table.experiment.name} ({', '.join(left)})" for table in tables if (left := _not_run(table))]
    if not_run:
        lines.append(f"**What was not run?** {'; '.join(not_run)}.")
    truths = list(_truths(tables, "pc-lc"))
    ran = any(any(block.seeds.values()) for table in tables for block in table.blocks)
    parts = [bullets(lines) if ran else "Nothing has been run yet.", *filter(None, [gains_section(tables)])]
    counts = list(_count_rows(verdicts))
    if counts:
        parts += [
            "What became of the published figures, by table and column, and how far ours are from them on average, in "
            "points:",
            markdown_table(counts),
        ]
    if truths:
        parts.append(
            "What is left of PC-LC, in %: the lowest figure of the paper's own attacks at each eps, in print and here, "
            "beside standard AutoAttack and the worst case of everything run."
        )
        parts.append(markdown_table([_truth_row(truth) for truth in truths]))
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
        f"Of {len(claims)} claims in words {outcomes[True]} hold, {outcomes[False]} do not, and {outcomes[None]} were "
        f"not run at all; of those judged, {partial} were run in part, and may end otherwise. By the paper's own "
        f"figures {sum(judged.paper.holds is False for judged in claims.values())} do not hold.",
        f"Those that do not hold here: {quoted(here)}; nor by the paper's own figures: {quoted(both)}.",
    ]


def _not_run(table: Table) -> list[str]:
    """The data sets of which no cell is finished."""
    ran = {block.dataset for block in table.blocks if any(block.seeds.values())}
    return [name for name in dict.fromkeys(block.dataset for block in table.blocks) if name not in ran]


def gains_section(tables: Sequence[Table]) -> str:
    """What PC-LC gains over cross-entropy, as a table; "" where nothing was run under AutoAttack."""
    gains = [_gain_row(gain) for gain in _gains(tables)]
    about = (
        "What PC-LC gains over cross-entropy trained the same way, in points at equal seeds, mean ± standard deviation "
        "with the 95 % interval of the mean: under the paper's PGD, in print and here, and under standard AutoAttack. "
        "Beside it, the percent that AutoAttack leaves of cross-entropy and of PC-LC; `+at` is the paper's adversarial "
        "training."
    )
    return f"{about}\n\n{markdown_table(gains)}" if gains else ""


def headline_section(tables: Sequence[Table], study: Sequence[Block]) -> str:
    """What PC gives alone and inside adversarial training, in two sentences."""
    alone: dict[str, str] = {}
    for gain in _gains(tables):
        if gain.experiment == "table1" and gain.autoattack.interval is not None:
            lost = gain.told == "nothing is left"
            number = "nothing is left of either" if lost else difference(gain.autoattack.interval)
            seeds = counted(len(gain.autoattack.differences), "seed")
            alone.setdefault(gain.dataset, f"{gain.dataset} at {gain.eps}: {number}, {seeds}")
    return (
        "In points under standard AutoAttack, with 95 % intervals over seeds: **alone**, PC-LC minus cross-entropy, "
        f"both trained as the paper says: {'; '.join(alone.values()) or 'not run with two seeds'}. "
        "**Inside adversarial training** at 8/255, cross-entropy with the PC term minus cross-entropy without, each "
        f"with settings chosen on held-out images: {leads_over_ce(study) or 'not run with two seeds yet'}."
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
        f"{counts['reproduced']} are reproduced ({clean} of them of clean accuracy), {counts['outside']} lie outside "
        f"what our seeds allow, {counts['cannot be told']} cannot be told because our seeds are few or scatter, and "
        f"{counts['not run']} are not run"
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


def _truths(tables: Sequence[Table], loss: str) -> Iterator[_Truth]:
    """For each model of a loss and each eps that AutoAttack was run at; a model of several tables once."""
    seen = set()
    for table in tables:
        for block in table.blocks:
            for entry in block.entries:
                attack, _, eps = entry.row.partition(" ")
                place = *_models(table, block), entry.column, eps
                if attack != "autoattack" or not entry.values or not entry.column.startswith(loss) or place in seen:
                    continue
                seen.add(place)
                same = [
                    e
                    for e in block.entries
                    if e.column == entry.column and e.published and e.values and e.row.endswith(f" {eps}")
                ]
                worst = [e for e in block.entries if (e.row, e.column) == (f"worst case {eps}", entry.column)]
                yield _Truth(
                    table.experiment.name,
                    block.dataset,
                    entry.column,
                    eps,
                    min((e.published.value for e in same if e.published), default=None),
                    min((mean(e.values.values()) for e in same), default=None),
                    entry,
                    worst[0] if worst else None,
                )


def _models(table: Table, block: Block) -> tuple[str, str, str]:
    """What tells whose models these are: those of another reading are others."""
    return table.experiment.name if _is_another_reading(table) else "", block.dataset, block.model


def _gains(tables: Sequence[Table]) -> Iterator[_Gain]:
    """For each table of the paper and each eps that AutoAttack was run at; a pair of models once."""
    seen = set()
    for table in tables:
        for block in table.blocks if table.experiment.published else ():
            for found in block.contrasts:
                attack, _, eps = found.row.partition(" ")
                rival = found.column.replace("pc-lc", "ce", 1)
                place = *_models(table, block), found.column, eps
                is_pair = found.column != rival == found.baseline
                if attack != "autoattack" or not found.differences or not is_pair or place in seen:
                    continue
                seen.add(place)
                same = (f"pgd {eps}", found.column, rival)
                pgd = [c for c in block.contrasts if (c.row, c.column, c.baseline) == same and c.published is not None]
                both = [block.entry(found.row, name).values for name in (rival, found.column)]
                one, other = (mean(values[seed] for seed in found.differences) for values in both)
                yield _Gain(table.experiment.name, block.dataset, eps, pgd[0] if pgd else None, found, (one, other))


def _gain_row(gain: _Gain) -> dict[str, str]:
    printed, here, _ = gain.pgd.shown() if gain.pgd else ("-", "-", "-")
    return {
        "experiment, data, loss": f"{gain.where}, {gain.autoattack.column}",
        "eps": gain.eps,
        "seeds": str(len(gain.autoattack.differences)),
        "gain under PGD, in print": printed,
        "gain under PGD, here": here,
        "AutoAttack leaves": " and ".join(f"{value:.1f}" for value in gain.left),
        "gain under AutoAttack": gain.autoattack.text(),
    }


def _truth_row(truth: _Truth) -> dict[str, str]:
    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.1f}"

    return {
        "where": f"{truth.experiment}, {truth.dataset}",
        "column": truth.column,
        "eps": truth.eps,
        "lowest published": number(truth.published),
        "lowest here": number(truth.ours),
        "AutoAttack": truth.autoattack.text(),
        "worst case": truth.worst_case.text() if truth.worst_case else "-",
    }


def _truth_sentences(tables: Sequence[Table]) -> list[str]:
    """How far the paper's attacks are from AutoAttack, of both losses, and whether that tells the losses apart."""
    lines = []
    halves = []
    for name, loss in (("PC-LC", "pc-lc"), ("cross-entropy", "ce")):
        found = [truth.is_half for truth in _truths(tables, loss) if truth.is_half is not None]
        halves += [f"of {name} in {sum(found)} of {len(found)} places"] if found else []
    if halves:
        what = (
            "Standard AutoAttack leaves less than half of what the paper's own attacks leave here at the same eps, "
            f"wherever these leave {_ENOUGH:.0f} % at least"
        )
        lines.append(f"{what}: {' and '.join(halves)}.")
    told: dict[str, list[str]] = {"ahead": [], "behind": [], "cannot be told": [], "nothing is left": []}
    for gain in _gains(tables):
        told[gain.told].append(f"{gain.where} at {gain.eps}")
    if any(told.values()):
        ahead, behind = (
            f"{len(told[which])}{' (' + '; '.join(told[which]) + ')' if told[which] else ''}"
            for which in ("ahead", "behind")
        )
        lines.append(
            f"Under standard AutoAttack PC-LC is ahead of cross-entropy trained the same way in {ahead} of the "
            f"{sum(map(len, told.values()))} rows below, and behind in {behind}; in {len(told['cannot be told'])} our "
            f"seeds do not tell, and in {len(told['nothing is left'])} nothing is left of either. Each row goes by its "
            "own 95 % interval, so that of many rows some may err."
        )
    return lines
