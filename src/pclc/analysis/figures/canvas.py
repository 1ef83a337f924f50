"""What all figures share: colours that everybody can tell apart, and files that are the same every time."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pclc.analysis.rows import Row, write_csv
from pclc.extras import needs_extra
from pclc.files import replace_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart, without their yellow, which is hard to see on white;
# Tol's indigo, wine, teal and olive and a grey fill up to twelve. Markers, hatches and lines say it without colour.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9",
    "#332288", "#000000", "#999999", "#882255", "#44AA99", "#999933",
)  # fmt: skip
MARKERS = ("o", "s", "^", "v", "D", "p", "h", "*", "<", ">", "d", "X")  # none looks like the "+" of successful attacks
HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\")
LINES = ("-", "--", ":", "-.")

_STYLE: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "pclc",  # names inside the file are otherwise random
    "figure.dpi": 200,
}


@contextmanager
def canvas(
    stem: str | os.PathLike[str],
    rows: Sequence[Row],
    panels: int = 1,
    size: tuple[float, float] = (4, 3),
) -> Iterator[tuple["Figure", list["Axes"]]]:
    """Yield a figure and its axes, and write `stem`.svg, .png and .csv when the block ends well.

    Args:
        stem: path without suffix.
        rows: the numbers that are shown.
        panels: how many axes, two beside each other.
        size: of a panel, in inches.
    """
    with needs_extra("report", "Drawing figures"):
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    across = min(2, panels)
    down = -(-panels // across)
    with rc_context(_STYLE):
        figure = Figure(figsize=(size[0] * across, size[1] * down), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(down, across, squeeze=False)
        yield figure, list(axes.flat)[:panels]
        for panel in list(axes.flat)[panels:]:
            panel.set_visible(False)
        path = Path(stem)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_csv(rows, path.with_name(path.name + ".csv"))
        # Without a date the same numbers give the same bytes.
        for suffix, metadata in ((".svg", {"Date": None}), (".png", {})):
            with replace_atomically(path.with_name(path.name + suffix)) as temporary:
                figure.savefig(temporary, metadata=metadata)
