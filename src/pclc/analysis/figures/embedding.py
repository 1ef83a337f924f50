"""t-SNE of the penultimate layer, clean images as dots and successful attacks as "+": the paper's Figures 1 and 3."""

import os
from collections.abc import Mapping

from pclc.analysis.embedding import EmbeddingResult
from pclc.analysis.figures.canvas import COLOURS, MARKERS, canvas
from pclc.analysis.rows import Row

_MOST_CLASSES = 10


def plot_embeddings(results: Mapping[str, EmbeddingResult], stem: str | os.PathLike[str]) -> None:
    """Draw a panel for each result; each class has a colour, a marker, and its name at its median.

    Args:
        results: by the title of the panel, all of the same classes, at most ten.
        stem: path of the files without suffix.
    """
    classes = next(iter(results.values())).classes
    if len(classes) > _MOST_CLASSES or any(result.classes != classes for result in results.values()):
        raise ValueError(f"Expected `results` to have the same classes, at most {_MOST_CLASSES}, but got {classes}.")
    rows: list[Row] = [{"panel": title, **row} for title, result in results.items() for row in result.rows()]
    with canvas(stem, rows, len(results), (4.2, 3.9)) as (figure, axes):
        for panel, (title, result) in zip(axes, results.items(), strict=True):
            for i, name in enumerate(classes):
                of_class = result.labels == i
                clean = result.points[of_class & ~result.successful_attack]
                fooled = result.points[of_class & result.successful_attack]
                panel.scatter(
                    clean[:, 0],
                    clean[:, 1],
                    s=9,
                    color=COLOURS[i],
                    marker=MARKERS[i],
                    linewidth=0,
                    alpha=0.55,
                    label=name,
                )
                panel.scatter(fooled[:, 0], fooled[:, 1], s=26, color=COLOURS[i], marker="+", linewidth=0.8)
            for i, name in enumerate(classes):
                clean = result.points[(result.labels == i) & ~result.successful_attack]
                if len(clean):
                    x, y = sorted(clean[:, 0])[len(clean) // 2], sorted(clean[:, 1])[len(clean) // 2]
                    box = {"boxstyle": "round,pad=0.2", "facecolor": "white", "edgecolor": COLOURS[i], "alpha": 0.85}
                    panel.text(x, y, name, ha="center", va="center", fontsize=8, bbox=box)
            attacks = int(result.successful_attack.sum())
            note = f", {attacks} successful attacks (+)" if attacks else ""
            panel.set_title(f"{title}\n{len(result.points) - attacks} clean images{note}", fontsize=9)
            panel.set_xlabel(f"{result.overlap:.1f} % of the clean images lie among other classes")
            panel.spines[:].set_visible(False)
            panel.set_xticks([])
            panel.set_yticks([])
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=5, markerscale=1.8, title="true class")
