"""The analyses of a cell: computed, kept as JSON, and read again with the names that the experiment has for them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from typing import Any

import numpy as np
from torch import Tensor, nn

from pclc.analysis import (
    ConfusionResult,
    EmbeddingResult,
    GapResult,
    HistogramResult,
    RanksResult,
    confusion,
    embed_model,
    histograms,
    loss_and_margin,
    mean_gaps,
    ranks_over_eps,
)
from pclc.analysis.outputs import attacked, logits_of
from pclc.attacks import Attack
from pclc.execution import Execution
from pclc.experiments.groups import Analysis

Result = RanksResult | EmbeddingResult | GapResult | HistogramResult | ConfusionResult
_RESULTS: dict[str, Callable[..., Result]] = {
    "ranks": RanksResult,
    "embedding": EmbeddingResult,
    "gaps": GapResult,
    "histograms": HistogramResult,
    "confusion": ConfusionResult,
}


@dataclass(frozen=True, eq=False)
class _Model:
    """What analyses are of."""

    model: nn.Module
    x: Tensor
    y: Tensor
    classes: tuple[str, ...]
    seed: int
    execution: Execution


def analyse(
    analysis: Analysis,
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    classes: tuple[str, ...],
    seed: int = 0,
    execution: Execution | None = None,
) -> list[dict[str, Any]]:
    """Compute an analysis, as JSON has it; attacks are named by their texts, since names do not decide results.

    Args:
        analysis: what is asked.
        model: images to logits.
        x: (N, C, H, W) in [0, 1]; an analysis may take only the first of them.
        y: (N,) true classes.
        classes: their names.
        seed: of attacks and t-SNE.
        execution: how it runs.
    """
    n = analysis.examples
    about = _Model(model, x[:n], y[:n], classes, seed, execution or Execution())
    return [
        {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in asdict(result).items()}
        for result in _COMPUTE[analysis.kind](about, analysis)
    ]


def read_analysis(analysis: Analysis, content: Sequence[Mapping[str, Any]]) -> list[Result]:
    """The results that :func:`analyse` gave, with the names of the experiment in place of the attacks' texts."""
    names = {attack.text: attack.name for attack in analysis.attacks}
    return [_renamed(_RESULTS[analysis.kind](**_as_python(entry)), names) for entry in content]


def figures_of(results: Sequence[Result]) -> dict[str, float]:
    """The numbers that tables and claims are about, by row; none for histograms."""
    figures: dict[str, float] = {}
    for result in results:
        if isinstance(result, GapResult):
            figures[f"{result.name} gap"] = result.mean
        elif not isinstance(result, HistogramResult):
            figures.update(result.figures())
    return figures


def _ranks(about: _Model, analysis: Analysis) -> list[Result]:
    """A series for each kind of attack, over its eps."""
    found: list[Result] = []
    for kind, series in groupby(analysis.attacks, lambda named: named.kind):
        grid = [(attack.eps, attack) for attack in (named.attack for named in series)]  # type: ignore[attr-defined]
        found.append(ranks_over_eps(about.model, about.x, about.y, kind, grid, about.seed, about.execution))
    return found


def _embedding(about: _Model, analysis: Analysis) -> list[Result]:
    named: list[tuple[str, Attack | None]] = [(attack.text, attack.attack) for attack in analysis.attacks]
    return [
        embed_model(about.model, about.x, about.y, about.classes, name, attack, about.seed, about.execution)
        for name, attack in named or [("clean", None)]
    ]


def _gaps(about: _Model, analysis: Analysis) -> list[Result]:
    attacks = {attack.text: attack.attack for attack in analysis.attacks}
    return list(mean_gaps(about.model, about.x, about.y, attacks, about.seed, about.execution))


def _histograms(about: _Model, analysis: Analysis) -> list[Result]:
    series = {name: loss_and_margin(logits, about.y) for name, logits in _logits(about, analysis)}
    return [
        histograms(quantity, {name: values[quantity] for name, values in series.items()})
        for quantity in ("loss", "margin")
    ]


def _confusion(about: _Model, analysis: Analysis) -> list[Result]:
    return [confusion(name, about.y, logits.argmax(1), about.classes) for name, logits in _logits(about, analysis)]


def _logits(about: _Model, analysis: Analysis) -> list[tuple[str, Tensor]]:
    """Of the clean images and under each attack."""
    images = [("clean", about.x)]
    for attack in analysis.attacks:
        x_adv = attacked(about.model, attack.attack, about.x, about.y, about.seed, about.execution)
        images.append((attack.text, x_adv))
    return [(name, logits_of(about.model, x, about.execution)) for name, x in images]


_COMPUTE: dict[str, Callable[[_Model, Analysis], list[Result]]] = {
    "ranks": _ranks,
    "embedding": _embedding,
    "gaps": _gaps,
    "histograms": _histograms,
    "confusion": _confusion,
}


def _renamed(result: Result, names: Mapping[str, str]) -> Result:
    if isinstance(result, RanksResult):
        return result
    if isinstance(result, HistogramResult):
        return replace(result, counts={names.get(name, name): counts for name, counts in result.counts.items()})
    return replace(result, name=names.get(result.name, result.name))


def _as_python(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Lists as the tuples and arrays that results hold."""
    arrays = ("points", "labels", "predictions", "successful_attack")
    return {name: np.array(value) if name in arrays else _tuples(value) for name, value in entry.items()}


def _tuples(value: object) -> Any:
    if isinstance(value, list):
        return tuple(_tuples(item) for item in value)
    if isinstance(value, dict):
        return {name: _tuples(item) for name, item in value.items()}
    return value
