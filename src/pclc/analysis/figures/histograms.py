"""Histograms of losses and margins as outlines."""

import os
from collections.abc import Mapping

from pclc.analysis.figures.canvas import COLOURS, LINES, canvas
from pclc.analysis.histograms import HistogramResult
from pclc.analysis.rows import Row


def plot_histograms(results: Mapping[str, HistogramResult], stem: str | os.PathLike[str]) -> None:
    """Draw a panel for each result, each with the same series.

    Args:
        results: by the title of the panel.
        stem: path of the files without suffix.
    """
    rows: list[Row] = [
        {"panel": title, "quantity": result.quantity, **row}
        for title, result in results.items()
        for row in result.rows()
    ]
    with canvas(stem, rows, len(results), (3.8, 2.6)) as (figure, axes):
        for panel, (title, result) in zip(axes, results.items(), strict=True):
            for i, (name, counts) in enumerate(result.counts.items()):
                shares = [100 * count / sum(counts) for count in counts]
                panel.stairs(
                    shares,
                    result.edges,
                    color=COLOURS[i % len(COLOURS)],
                    linestyle=LINES[i % len(LINES)],
                    linewidth=1.6,
                    label=name,
                )
            if result.edges[0] < 0 < result.edges[-1]:
                panel.axvline(0, color="black", linewidth=0.6)
            panel.set_yscale("symlog", linthresh=1)
            panel.set_ylim(bottom=0)
            panel.set_yticks([0, 1, 10, 100], ["0", "1", "10", "100"])
            panel.set_xlabel(f"{result.quantity} (the ends hold what lies beyond)")
            panel.set_ylabel("% of examples, logarithmic")
            panel.set_title(title, fontsize=9)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
