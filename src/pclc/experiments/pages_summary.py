"""What the tables say together, in sentences made by counting; and where the paper leaves room, with what was tried."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean

from pclc.analysis.verdict import Verdict
from pclc.experiments.ambiguities import Ambiguity, ambiguity_table, load_ambiguities
from pclc.experiments.pages_text import bullets, counted, markdown_table, quoted
from pclc.experiments.table import Block, Entry, Table, spread

_WORDS = ("reproduced", "differs", "underpowered", "not run")
_SMALL = "8/255"


@dataclass(frozen=True)
class _Truth:
    """A model of PC-LC at one eps: what the paper's attacks leave, in print and here, and what is left."""

    experiment: str
    dataset: str
    column: str
    adversarial: bool  # it saw adversarial examples in training
    eps: str
    published: float | None
    ours: float | None
    autoattack: Entry
    worst_case: Entry | None

    @property
    def left(self) -> float:
        """Mean accuracy under AutoAttack."""
        return mean(self.autoattack.values.values())

    @property
    def place(self) -> str:
        """Where it stands."""
        seeds = counted(len(self.autoattack.values), "seed")
        return f"{self.experiment}, {self.dataset}, {self.column}, eps {self.eps}, {seeds}"


def summary_section(tables: Sequence[Table]) -> str:
    """In short: how much was reproduced, which claims hold, and what AutoAttack leaves."""
    # Several experiments may hold readings against the same figures: they count once, for the table they are of.
    own_first = sorted(tables, key=_is_another_reading)
    figures: dict[tuple[str | None, ...], tuple[Table, Block, Entry]] = {}
    differences: dict[tuple[str | None, ...], Verdict] = {}
    for table in own_first:
        for block in table.blocks:
            place, entries = (table.experiment.published, block.dataset, block.model), _published(block)
            for entry in entries:
                figures.setdefault((*place, entry.column, entry.row), (table, block, entry))
            for contrast in block.contrasts:
                if contrast.verdict and contrast.column in {entry.column for entry in entries}:
                    key = (*place, contrast.column, contrast.baseline, contrast.row)
                    differences.setdefault(key, contrast.verdict)
    verdicts, contrasts = list(figures.values()), list(differences.values())
    limits = tables[0].selection.limits
    lines = [f"**A trial, whose figures mean nothing**: {limits}."] if limits else []
    if verdicts:
        lines.append(f"Of {len(verdicts)} published figures {_counts(e.verdict for _, _, e in verdicts)}.")
        lines.append(f"Of {len(contrasts)} published differences between losses {_counts(contrasts)}.")
    claims = {judged.claim.name: judged for table in tables for judged in table.claims}
    if claims:
        outcomes = Counter(judged.ours.holds for judged in claims.values())
        partial = sum(judged.partial and judged.ours.holds is not None for judged in claims.values())
        lines.append(
            f"Of {len(claims)} claims in words {outcomes[True]} hold, {outcomes[False]} do not, and {outcomes[None]} "
            f"were not run at all; of those judged, {partial} were run in part, and may end otherwise. By the paper's "
            f"own figures {sum(judged.paper.holds is False for judged in claims.values())} do not hold."
        )
        failed = [name for name, judged in claims.items() if judged.ours.holds is False]
        lines.append(f"Those that do not hold here: {quoted(failed)}.")
    truths = list(_truths(tables))
    lines += _truth_sentences(truths)
    ran = any(any(block.seeds.values()) for table in tables for block in table.blocks)
    parts = [bullets(lines)] if ran else ["Nothing has been run yet."]
    counts = list(_count_rows(verdicts))
    if counts:
        parts.append(markdown_table(counts))
    if truths:
        parts.append(
            "What is left of PC-LC, in %: the lowest figure of the paper's own attacks at each eps, in print and here, "
            "beside standard AutoAttack and the worst case of everything run."
        )
        parts.append(markdown_table([_truth_row(truth) for truth in truths]))
    return "\n\n".join([*parts, gains_section(tables)]).strip()


def gains_section(tables: Sequence[Table]) -> str:
    """What PC-LC gains over cross-entropy, as a table; "" where nothing was run under AutoAttack."""
    gains = list(_gains(tables))
    about = (
        "What PC-LC gains over cross-entropy trained the same way, in points at equal seeds, mean ± standard deviation "
        "with the 95 % interval of the mean: under the paper's PGD, in print and here, and under standard AutoAttack, "
        "which leaves so much of cross-entropy and of PC-LC."
    )
    return f"{about}\n\n{markdown_table(gains)}" if gains else ""


def ambiguities_section(tables: Sequence[Table]) -> str:
    """The table of what the paper leaves open, with what the other choice gave where that was run."""
    found = {entry.name: text for entry in load_ambiguities() if (text := "; ".join(_tried(entry, tables)))}
    return ambiguity_table(found)


def _tried(entry: Ambiguity, tables: Iterable[Table]) -> Iterator[str]:
    names = re.findall(r"`([^`]+)`", entry.measured_by)
    for table in tables:
        if not re.search(rf"\b{table.experiment.name}\b", entry.measured_by):
            continue
        for block in table.blocks:
            found = {column: block.distance(column) for column in block.columns if not names or column in names}
            near = sorted((distance, column) for column, distance in found.items() if distance is not None)
            if near:
                distances = ", ".join(f"`{column}` {distance:.1f}" for distance, column in near)
                yield f"{table.experiment.name}, {block.dataset}, points from the published figures: {distances}"
            for row in block.rows:
                entries = [e for e in block.entries if e.row == row and e.values]
                if entries and any(row.startswith(name) for name in names):
                    figures = ", ".join(f"{e.column} {spread(list(e.values.values()))}" for e in entries)
                    yield f"{table.experiment.name}, {block.dataset}, `{row}`: {figures}"


def _is_another_reading(table: Table) -> bool:
    """Whether it holds something else than the paper states against a table of the paper."""
    published = table.experiment.published
    return published is not None and table.experiment.name.removesuffix("-smoke") != published


def _published(block: Block) -> list[Entry]:
    """The entries that are judged; where several columns stand for one of the paper, the one of its name."""
    return [e for e in block.entries if e.verdict is not None and e.published and e.published.column == e.column]


def _counts(verdicts: Iterable[Verdict | None]) -> str:
    found = [verdict for verdict in verdicts if verdict is not None]
    counts = Counter(verdict.judgement for verdict in found)
    outside = sum(verdict.outside for verdict in found if verdict.judgement == "underpowered")
    return (
        f"{counts['reproduced']} are reproduced, {counts['differs']} differ, for {counts['underpowered']} our seeds "
        f"scatter too much to tell ({outside} of these lie outside the interval all the same), and "
        f"{counts['not run']} are not run"
    )


def _count_rows(verdicts: Sequence[tuple[Table, Block, Entry]]) -> Iterator[dict[str, str]]:
    places: dict[tuple[str, str, str], Counter[str]] = {}
    for table, block, entry in verdicts:
        assert entry.verdict is not None
        place = table.experiment.name, block.dataset, entry.column
        places.setdefault(place, Counter())[entry.verdict.judgement] += 1
    for (name, dataset, column), counts in places.items():
        about = {"where": f"{name}, {dataset}", "column": column, "figures": str(counts.total())}
        if counts["not run"] < counts.total():
            yield about | {word: str(counts[word]) for word in _WORDS}


def _truths(tables: Sequence[Table]) -> Iterator[_Truth]:
    """For each model of PC-LC and each eps that AutoAttack was run at; a model of several tables once."""
    seen = set()
    for table in tables:
        arms = [arm for group in table.experiment.groups for arm in group.arms]
        trained = {arm.column for arm in arms if arm.adversarial is not None}
        for block in table.blocks:
            for entry in block.entries:
                attack, _, eps = entry.row.partition(" ")
                place = *_models(table, block), entry.column, eps
                if attack != "autoattack" or not entry.values or not entry.column.startswith("pc-lc") or place in seen:
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
                    entry.column in trained,
                    eps,
                    min((e.published.value for e in same if e.published), default=None),
                    min((mean(e.values.values()) for e in same), default=None),
                    entry,
                    worst[0] if worst else None,
                )


def _models(table: Table, block: Block) -> tuple[str, str, str]:
    """What tells whose models these are: those of another reading are others."""
    return table.experiment.name if _is_another_reading(table) else "", block.dataset, block.model


def _gains(tables: Sequence[Table]) -> Iterator[dict[str, str]]:
    """PC-LC minus cross-entropy at each eps that both PGD and AutoAttack were run at; a pair of models once."""
    seen = set()
    for table in tables:
        for block in table.blocks:
            for found in block.contrasts:
                attack, _, eps = found.row.partition(" ")
                rival = found.column.replace("pc-lc", "ce", 1)
                place = *_models(table, block), found.column, eps
                if attack != "autoattack" or not found.differences or found.baseline != rival or place in seen:
                    continue
                same = (f"pgd {eps}", found.column, rival)
                pgd = [c for c in block.contrasts if (c.row, c.column, c.baseline) == same and c.published is not None]
                if found.column == rival or not pgd:
                    continue
                seen.add(place)
                printed, here, *_ = pgd[0].text().split(" | ")
                left = [mean(block.entry(found.row, name).values.values()) for name in (rival, found.column)]
                yield {
                    "where": f"{table.experiment.name}, {block.dataset}",
                    "column": found.column,
                    "eps": eps,
                    "PGD in print": printed,
                    "PGD here": here,
                    "AutoAttack leaves": " and ".join(f"{value:.1f}" for value in left),
                    "AutoAttack": found.text(),
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


def _truth_sentences(truths: Sequence[_Truth]) -> list[str]:
    lines = []
    for trained, what in ((False, "PC-LC alone"), (True, "PC-LC with the paper's adversarial training")):
        for small, where in ((False, "at the eps of the tables"), (True, f"at {_SMALL}")):
            chosen = [t for t in truths if t.adversarial is trained and (t.eps == _SMALL) is small]
            if not chosen:
                continue
            most = max(chosen, key=lambda truth: truth.left)
            text = f"Standard AutoAttack {where} leaves {what} at most {most.left:.1f} % on average ({most.place})"
            if most.ours is not None and most.published is not None:
                text += (
                    f", where the paper's attacks leave at least {most.ours:.1f} % here and {most.published:.1f} % in "
                    "print"
                )
            compared = [truth for truth in chosen if truth.ours]
            half = sum(truth.left < (truth.ours or 0) / 2 for truth in compared)
            more = f" In {half} of {len(compared)} places it leaves less than half of what those attacks leave."
            lines.append(text + "." + (more if compared else ""))
    return lines
