"""The figures of an experiment, from the analyses of its finished cells."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pclc.analysis import GapResult
from pclc.analysis.figures import plot_confusion, plot_embeddings, plot_gaps, plot_histograms, plot_ranks
from pclc.experiments.analyses import Result
from pclc.experiments.experiment import Cell
from pclc.experiments.groups import Analysis
from pclc.experiments.store import Store
from pclc.experiments.values import analysis_results

_PLOTS: dict[str, Callable[[Any, Path], None]] = {
    "ranks": plot_ranks,
    "embedding": plot_embeddings,
    "histograms": plot_histograms,
    "confusion": plot_confusion,
    "gaps": plot_gaps,
}


def draw_figures(store: Store, name: str, cells: Sequence[Cell], folder: Path) -> list[Path]:
    """Write SVG, PNG and CSV for each data set and kind of analysis, and give their common stems.

    A figure shows one seed, the smallest that every column has; its title says which.

    Args:
        store: with the results; cells that are not finished are left out.
        name: of the experiment, with which file names begin.
        cells: of the experiment.
        folder: where the files go.
    """
    finished: dict[str, list[Cell]] = {}
    for cell in cells:
        if cell.analyses and store.load(cell) is not None:
            finished.setdefault(cell.training.dataset, []).append(cell)
    stems = []
    for dataset, group in finished.items():
        seeds = [{c.training.config.seed for c in group if c.column == column} for column in {c.column for c in group}]
        common = set.intersection(*seeds)
        if not common:
            continue
        seed = min(common)
        several = len({cell.training.model for cell in group}) > 1
        panels: dict[str, dict[str, Any]] = {}
        for cell in group:
            if cell.training.config.seed == seed:
                network = f"{cell.training.model}, " if several else ""
                title = f"{dataset}, {network}{cell.column}, seed {seed}"
                for analysis, results in analysis_results(store, cell):
                    _add_panels(panels.setdefault(analysis.kind, {}), title, analysis, results)
        for kind, results_by_title in panels.items():
            stem = folder / f"{name}-{dataset}-{kind}"
            _PLOTS[kind](results_by_title, stem)
            stems.append(stem)
    return stems


def _add_panels(panels: dict[str, Any], title: str, analysis: Analysis, results: Sequence[Result]) -> None:
    if analysis.kind == "gaps":
        panels[title] = [result for result in results if isinstance(result, GapResult)]
        return
    for result in results:
        what = getattr(result, "attack", None) or getattr(result, "quantity", None) or getattr(result, "name", "")
        panels[f"{title}, {what}"] = result
