"""Mean probability gaps of several models, clean and under attack."""

import os
from collections.abc import Mapping, Sequence

from pclc.analysis.figures.canvas import COLOURS, HATCHES, canvas
from pclc.analysis.gaps import GapResult
from pclc.analysis.rows import Row


def plot_gaps(results: Mapping[str, Sequence[GapResult]], stem: str | os.PathLike[str]) -> None:
    """Draw a group of bars for each set of images, with 95 % intervals of the mean.

    Args:
        results: by model, each with the same sets of images in the same order.
        stem: path of the files without suffix.
    """
    names = [result.name for result in next(iter(results.values()))]
    for model, found in results.items():
        if [result.name for result in found] != names:
            raise ValueError(f"Expected {model!r} to have results for {', '.join(names)}, in this order.")
    rows: list[Row] = [{"model": model, **result.row()} for model, found in results.items() for result in found]
    width = 0.8 / len(results)
    with canvas(stem, rows, size=(max(3.6, 0.5 + 0.45 * len(names) * len(results)), 2.8)) as (figure, (panel,)):
        for i, (model, found) in enumerate(results.items()):
            panel.bar(
                [place + (i - (len(results) - 1) / 2) * width for place in range(len(names))],
                [result.mean for result in found],
                width=width,
                yerr=[1.96 * result.standard_error for result in found],
                capsize=2,
                color=COLOURS[i % len(COLOURS)],
                hatch=HATCHES[i % len(HATCHES)],
                edgecolor="white",
                linewidth=0.4,
                error_kw={"linewidth": 0.8},
                label=model,
            )
        panel.axhline(0, color="black", linewidth=0.6)
        panel.set_xticks(range(len(names)), names)
        panel.set_ylabel("mean probability gap")
        figure.legend(loc="outside lower center", ncols=len(results))
