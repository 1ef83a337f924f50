"""Clean against robust accuracy, one mark a model; and accuracies on held-out images over epochs."""

import os
from collections.abc import Mapping

from pclc.analysis.figures.canvas import COLOURS, LINES, MARKERS, canvas
from pclc.analysis.rows import Row

Points = Mapping[str, Mapping[int, tuple[float, float]]]  # by arm and seed: clean and robust accuracy in percent
Curves = Mapping[str, Mapping[int, float]]  # by arm and epoch


def plot_tradeoff(panels: Mapping[str, Points], stem: str | os.PathLike[str]) -> None:
    """Draw a panel for each network: a small mark for each model, a large one for the mean of its arm.

    Args:
        panels: by title, the arms with their (clean, robust) accuracies in percent; at most twelve arms in all.
        stem: path of the files without suffix.
    """
    styles = _styles(panels)
    rows: list[Row] = [
        {"panel": title, "arm": arm, "seed": seed, "clean %": clean, "autoattack %": robust}
        for title, arms in panels.items()
        for arm, points in arms.items()
        for seed, (clean, robust) in points.items()
    ]
    with canvas(stem, rows, len(panels), (4.0, 3.4)) as (figure, axes):
        handles = {}
        for panel, (title, arms) in zip(axes, panels.items(), strict=True):
            for arm, points in arms.items():
                colour, marker = COLOURS[styles[arm]], MARKERS[styles[arm]]
                clean, robust = zip(*points.values(), strict=True)
                panel.scatter(clean, robust, s=22, color=colour, marker=marker, alpha=0.6, linewidth=0)
                handles[arm] = panel.scatter(
                    [sum(clean) / len(clean)],
                    [sum(robust) / len(robust)],
                    s=70,
                    color=colour,
                    marker=marker,
                    edgecolor="black",
                    linewidth=0.7,
                )
            panel.set_xlabel("clean accuracy (%)")
            panel.set_ylabel("accuracy under AutoAttack (%)")
            panel.set_title(title, fontsize=9)
            panel.grid(linewidth=0.3)
            panel.set_axisbelow(True)
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)


def plot_curves(panels: Mapping[str, Curves], stem: str | os.PathLike[str]) -> None:
    """Draw robust accuracy on held-out images over epochs, a panel for each network.

    Args:
        panels: by title, the arms with their accuracies in percent by epoch; at most twelve arms in all.
        stem: path of the files without suffix.
    """
    styles = _styles(panels)
    rows: list[Row] = [
        {"panel": title, "arm": arm, "epoch": epoch, "held out, robust %": value}
        for title, arms in panels.items()
        for arm, curve in arms.items()
        for epoch, value in curve.items()
    ]
    with canvas(stem, rows, len(panels), (4.0, 3.0)) as (figure, axes):
        handles = {}
        for panel, (title, arms) in zip(axes, panels.items(), strict=True):
            for arm, curve in arms.items():
                style = styles[arm]
                (handles[arm],) = panel.plot(
                    list(curve),
                    list(curve.values()),
                    color=COLOURS[style],
                    linestyle=LINES[style % len(LINES)],
                    marker=MARKERS[style],
                    markevery=max(1, len(curve) // 8),
                    markersize=4,
                    linewidth=1.2,
                )
            panel.set_xlabel("epoch")
            panel.set_ylabel("robust accuracy, held out (%)")
            panel.set_title(title, fontsize=9)
        figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)


def _styles(panels: Mapping[str, Mapping[str, object]]) -> dict[str, int]:
    """One for each arm, the same in every panel."""
    arms = list(dict.fromkeys(arm for panel in panels.values() for arm in panel))
    if not arms or len(arms) > len(COLOURS):
        raise ValueError(f"Expected 1 to {len(COLOURS)} arms, which can be told apart, but got {len(arms)}.")
    return {arm: i for i, arm in enumerate(arms)}
