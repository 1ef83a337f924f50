"""Where newly successful attacks land, as stacked bars with their number as a line: the paper's Figure 2."""

import os
from collections.abc import Mapping

from pclc.analysis.figures.canvas import COLOURS, HATCHES, canvas
from pclc.analysis.ranks import RANKS, RanksResult
from pclc.analysis.rows import Row

_ORDINALS = ("2nd", "3rd", "4th", "5th")


def plot_ranks(results: Mapping[str, RanksResult], stem: str | os.PathLike[str]) -> None:
    """Draw a panel for each result.

    Args:
        results: by the title of the panel.
        stem: path of the files without suffix.
    """
    rows: list[Row] = [{"panel": title, **row} for title, result in results.items() for row in result.rows()]
    width = max(4.2, 0.24 * max(len(result.eps) for result in results.values()) + 1.4)
    with canvas(stem, rows, len(results), (width, 2.9)) as (figure, axes):
        from matplotlib.patheffects import withStroke
        from matplotlib.ticker import MaxNLocator

        for panel, (title, result) in zip(axes, results.items(), strict=True):
            places = range(len(result.eps))
            bottom = [0.0] * len(result.eps)
            for i, _ in enumerate(RANKS):
                heights = [shares[i] or 0.0 for shares in result.shares()]
                panel.bar(
                    places,
                    heights,
                    bottom=bottom,
                    width=0.8,
                    color=COLOURS[i],
                    hatch=HATCHES[i],
                    edgecolor="white",
                    linewidth=0.4,
                    label=f"{_ORDINALS[i]} most probable class",
                )
                bottom = [low + height for low, height in zip(bottom, heights, strict=True)]
            panel.set_xticks(list(places), [f"{eps:g}" for eps in result.eps], rotation=90)
            panel.set_ylim(0, 100)
            panel.set_xlabel("eps")
            panel.set_ylabel("share of new successes (%)")
            panel.set_title(title, fontsize=9)
            count = panel.twinx()
            (line,) = count.plot(places, result.new, "o-", color="black", markersize=3, linewidth=1)
            line.set_path_effects([withStroke(linewidth=3, foreground="white")])  # seen on dark bars too
            count.yaxis.set_major_locator(MaxNLocator(5, integer=True))
            count.set_ylim(0, 1.08 * max(1, *result.new))
            count.set_ylabel(f"new successes (of {result.examples})")
            count.spines["right"].set_visible(True)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend([*handles, line], [*labels, "new successes"], loc="outside lower center", ncols=3)
