"""What cells say, row by row: figures by the names that tables, claims and the paper have for them."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from pclc.attacks import AutoAttack
from pclc.attacks.attack import number_text
from pclc.experiments.analyses import Result, figures_of, read_analysis
from pclc.experiments.experiment import Cell, Experiment
from pclc.experiments.store import Store


@dataclass(frozen=True)
class Selection:
    """Which part of an experiment is asked for.

    Attributes:
        datasets: names; None: all.
        columns: names; None: all.
        seeds: how many; None: as many as the experiment has. A study with settings never has more than its own, since
            its groups differ in that on purpose.
        variant: "paper" or "authors".
        examples: only the first so many test images; None: all.
        epochs: at most so many in each phase; None: all.
    """

    datasets: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    seeds: int | None = None
    variant: str = "paper"
    examples: int | None = None
    epochs: int | None = None

    def __post_init__(self) -> None:
        if self.seeds is not None and self.seeds < 1:
            raise ValueError(f"Expected `seeds` to be at least 1, but got {self.seeds!r}.")

    @property
    def limits(self) -> str:
        """What makes it something else than the experiment, in words; empty where nothing does."""
        parts = []
        if self.examples is not None:
            parts.append(f"only the first {self.examples} test images")
        if self.epochs is not None:
            parts.append(f"at most {self.epochs} epochs a phase")
        return ", ".join(parts)

    def tuning_cells(self, experiment: Experiment) -> list[Cell]:
        """The cells on which the settings of arms are chosen; none where no data set of the experiment is asked for."""
        if _known(self.datasets, experiment.datasets) == []:
            return []
        return experiment.tuning_cells(_known(self.columns, experiment.arms), self.examples, self.epochs)

    def cells(self, experiment: Experiment, choices: Mapping[str, int] | None = None) -> list[Cell]:
        """The cells of that part; data sets and columns that this experiment does not have are left out."""
        cells = experiment.cells(
            _known(self.datasets, experiment.datasets),
            _known(self.columns, experiment.arms),
            range(self.seeds) if self.seeds and experiment.tuning is None else None,
            self.variant,
            choices,
            self.examples,
            self.epochs,
        )
        return [cell for cell in cells if self.seeds is None or cell.training.config.seed < self.seeds]


def choose(store: Store, cells: Iterable[Cell]) -> dict[str, int]:
    """By column the setting with the most images right under the tuning attack; the first of equals.

    Columns of which a setting is not run yet are left out: the choice would not be a fair one.
    """
    found: dict[str, list[int | None]] = {}
    for cell in cells:
        result = store.load(cell)
        found.setdefault(cell.column, []).append(result["attacks"][0]["correct"] if result else None)
    return {
        column: counts.index(max(count for count in counts if count is not None))
        for column, counts in found.items()
        if None not in counts
    }


def possible_cells(store: Store, experiment: Experiment, selection: Selection) -> list[Cell]:
    """All that is asked for; of arms whose setting is not chosen yet, with the first: what they cost is the same."""
    tuning = selection.tuning_cells(experiment)
    choices = {cell.column: 0 for cell in tuning} | choose(store, tuning)
    return [*tuning, *selection.cells(experiment, choices)]


def row_values(store: Store, cell: Cell, result: Mapping[str, Any]) -> dict[str, float]:
    """The figures of a cell by row: accuracies in percent, worst cases, and those of its analyses."""
    n = result["n"]
    values = {"clean": 100 * result["clean"] / n}
    found = {(entry["attack"], entry["transfer"]): entry["correct"] for entry in result["attacks"]}
    values |= {attack.name: 100 * found[attack.text, attack.transfer] / n for attack in cell.attacks}
    if cell.attacks:
        own = [named.attack for named in cell.attacks if not named.transfer]
        strong = {(attack.norm, attack.eps) for attack in own if isinstance(attack, AutoAttack)}
        for entry in result["worst_case"]:
            decided = bool(strong) if entry["eps"] is None else (entry["norm"], entry["eps"]) in strong
            values[worst_case_name(entry, decided)] = 100 * entry["correct"] / n
    for _, results in analysis_results(store, cell):
        values |= figures_of(results)
    return values


def row_of(published: str | None, row: str) -> str:
    """The row of the paper's table that a row is; of its gaps, which it quotes for clean images alone, this one.

    Example:
        >>> row_of("gaps", "clean gap"), row_of("gaps", "clean"), row_of("table1", "clean")
        ('clean', 'clean accuracy', 'clean')
    """
    if published != "gaps":
        return row
    return {"clean gap": "clean", "clean": "clean accuracy"}.get(row, row)


def worst_case_name(entry: Mapping[str, Any], decided: bool) -> str:
    """The row of a worst case, which bears that name only where AutoAttack attacked the model itself.

    Example:
        >>> worst_case_name({"norm": "Linf", "eps": 8 / 255}, True), worst_case_name({"norm": None, "eps": None}, False)
        ('worst case 8/255', 'worst of these, all')
    """
    if entry["eps"] is None:
        return "worst case of all" if decided else "worst of these, all"
    where = number_text(entry["eps"]) if entry["norm"] == "Linf" else f"{entry['norm']} {number_text(entry['eps'])}"
    return f"worst case {where}" if decided else f"worst of these {where}"


def analysis_results(store: Store, cell: Cell) -> list[tuple[Any, list[Result]]]:
    """The analyses of a finished cell, each with its results."""
    if not cell.analyses:
        return []
    content = store.details(cell, "analyses")
    return [(analysis, read_analysis(analysis, entry)) for analysis, entry in zip(cell.analyses, content, strict=True)]


def mean_figures(store: Store, experiment: Experiment, cells: Sequence[Cell]) -> dict[tuple[str, str, str, str], float]:
    """Means over the seeds that are there, by the names that claims use; of a table only the paper's own rows."""
    found: dict[tuple[str, str, str, str], list[float]] = {}
    for cell in cells:
        result = store.load(cell)
        if result is None:
            continue
        for row, value in row_values(store, cell, result).items():
            name = row_of(experiment.published, row)
            if experiment.published is None or experiment.figure(cell, name) is not None:
                found.setdefault((experiment.name, cell.training.dataset, cell.column, name), []).append(value)
    return {place: mean(values) for place, values in found.items()}


def _known(chosen: Collection[str] | None, known: Collection[str]) -> list[str] | None:
    return None if chosen is None else [name for name in chosen if name in known]
