"""True against predicted class, in percent of the true class."""

import os
from collections.abc import Mapping

from pclc.analysis.confusion import ConfusionResult
from pclc.analysis.figures.canvas import canvas
from pclc.analysis.rows import Row

_MOST_CLASSES = 20


def plot_confusion(results: Mapping[str, ConfusionResult], stem: str | os.PathLike[str]) -> None:
    """Draw a panel for each result, with the figure in every cell.

    Args:
        results: by the title of the panel, each of at most 20 classes.
        stem: path of the files without suffix.
    """
    largest = max(len(result.classes) for result in results.values())
    if largest > _MOST_CLASSES:
        raise ValueError(f"Expected at most {_MOST_CLASSES} classes, which can still be read, but got {largest}.")
    rows: list[Row] = [{"panel": title, **row} for title, result in results.items() for row in result.rows()]
    side = 0.32 * largest + 1.2
    with canvas(stem, rows, len(results), (side, side)) as (_, axes):
        for panel, (title, result) in zip(axes, results.items(), strict=True):
            shares = [[100 * count / max(1, sum(counts)) for count in counts] for counts in result.counts]
            panel.imshow(shares, cmap="Blues", vmin=0, vmax=100)
            for i, line in enumerate(shares):
                for j, share in enumerate(line):
                    if result.counts[i][j]:
                        colour = "white" if share > 55 else "black"
                        text = f"{share:.0f}" if share >= 0.5 else "<1"
                        panel.text(j, i, text, ha="center", va="center", color=colour, fontsize=6.5)
            panel.set_xticks(range(len(result.classes)), list(result.classes), rotation=90)
            panel.set_yticks(range(len(result.classes)), list(result.classes))
            panel.set_xlabel("predicted class")
            panel.set_ylabel("true class")
            panel.set_title(f"{title}\n% of the true class", fontsize=9)
