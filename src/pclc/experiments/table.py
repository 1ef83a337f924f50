"""An experiment as a table: the published figure, ours over seeds, and what can be said about it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from pclc.analysis.verdict import Verdict, judge, judge_contrast
from pclc.attacks import SPSA, AutoAttack
from pclc.evaluation.result import NO_EVIDENCE
from pclc.evaluation.statistics import compare_over_seeds
from pclc.experiments.block import Block, Contrast, Entry, ZeroGradients, digits_of
from pclc.experiments.claims import JudgedClaim, judge_claims
from pclc.experiments.experiment import Cell, Experiment
from pclc.experiments.published import PublishedFigure
from pclc.experiments.store import Store
from pclc.experiments.values import Selection, row_of, row_values

_CONFUSION = re.compile(".+ from .+ to .+")  # too many for a table; claims and figures have them
_NOTICED = 0.0005  # share of gradients that are zero from which on it is told


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
        label = f". SUBSET: {limits}; a trial, without verdicts" if limits else ""
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


def setting_text(setting: Mapping[str, Mapping[str, Any]]) -> str:
    """A setting of an arm in words.

    Example:
        >>> setting_text({"train": {"lr": 0.1}, "recipe": {"beta": 5.0}})
        'lr 0.1, beta 5.0'
    """
    return ", ".join(f"{key} {value}" for part in setting.values() for key, value in part.items())


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
                least = 0.0 if digits_of(row) == 3 else step
                interval = compare_over_seeds(*pairs, step=least) if len(seeds) > 1 else None
                differences = {seed: ours[seed] - theirs[seed] for seed in seeds}
                published = both and both[0] - both[1]
                contrasts.append(Contrast(row, column, baseline, published, differences, verdict, interval))
    return contrasts


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
