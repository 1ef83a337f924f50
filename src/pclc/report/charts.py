"""Charts as SVG, written by hand: they need no library, follow the page's colours, print, and stay small."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

_WIDTH, _HEIGHT = 300, 205
_LEFT, _RIGHT, _TOP, _BOTTOM = 38, 12, 10, 34
_STYLES = 8  # colours, dashes and markers that the style sheet has
# Outlines around (0, 0), so that series differ without colour.
_MARKERS = (
    "M-3.4 0a3.4 3.4 0 1 0 6.8 0a3.4 3.4 0 1 0 -6.8 0z",
    "M-3 -3h6v6h-6z",
    "M0 -4L4 3H-4z",
    "M0 -4.2L4.2 0L0 4.2L-4.2 0z",
    "M0 4L4 -3H-4z",
    "M-1 -4h2v3h3v2h-3v3h-2v-3h-3v-2h3z",
    "M0 -4L3.8 -1.2L2.4 3.4H-2.4L-3.8 -1.2z",
    "M-4 -1.5h8v3h-8z",
)


@dataclass(frozen=True)
class Dot:
    """A point of a line, what is said of it, and the ends of its interval."""

    x: float
    y: float
    text: str
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Line:
    """A line of a chart.

    Attributes:
        key: number of the series, by which a legend shows and hides it.
        label: its name.
        dots: its points.
        main: drawn thick and in the colour of the text.
        marked: with a marker at each point.
    """

    key: int
    label: str
    dots: tuple[Dot, ...]
    main: bool = False
    marked: bool = True


def swatch(key: int, main: bool = False) -> Markup:
    """A piece of the line, for a legend."""
    return Markup(
        '<svg class="swatch" viewBox="0 0 30 12" width="30" height="12" aria-hidden="true">'
        f'<path class="line {_style(key, main)}" d="M1 6H29"/>{_marker(15, 6, key, main)}</svg>'
    )


def line_chart(
    lines: Sequence[Line],
    label: str,
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None = None,
) -> Markup:
    """Lines over a common axis, with bands where points have intervals.

    Args:
        lines: what is drawn, the last on top; those without a dot are left out.
        label: what a screen reader says of the chart.
        x_label: of the axis.
        y_label: of the axis.
        y_range: None: from the smallest to the largest value.
    """
    lines = [line for line in lines if line.dots]
    dots = [dot for line in lines for dot in line.dots]
    if not dots:
        return Markup()
    low_x, high_x = _range([dot.x for dot in dots])
    low_y, high_y = y_range or _range([dot.y for dot in dots])
    frame = _Frame(low_x, high_x, low_y, high_y)
    columns = sorted({dot.x for dot in dots})
    parts = [_axes(frame, x_label, y_label)]
    parts.append(f'<path class="cursor" d="M0 {_TOP}V{_HEIGHT - _BOTTOM}" visibility="hidden"/>')
    parts += [_line(line, frame, columns) for line in lines]
    places = " ".join(f"{frame.x(x):.1f}" for x in columns)
    words = " | ".join(f"{x_label} {x:.4g}" for x in columns)
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(label)}" '
        f'data-columns="{places}" data-words="{escape(words)}">{"".join(parts)}</svg>'
    )


def range_chart(rows: Sequence[tuple[str, Sequence[Dot]]], label: str) -> Markup:
    """Accuracy in %, a row for each name: an open marker for what is claimed, a filled one with its interval for what
    is left.

    Args:
        rows: names, each with the dots "claimed" (may be missing) and "left", the last.
        label: what a screen reader says of the chart.
    """
    height, top, bottom, step = 34 * len(rows) + 44, 6, 38, 34
    frame = _Frame(0, 100, 0, 1, left=8, right=14)
    parts = []
    for tick in range(0, 101, 20):
        x = frame.x(tick)
        parts.append(
            f'<path class="grid" d="M{x:.1f} {top}V{height - bottom}"/>'
            f'<text class="tick middle" x="{x:.1f}" y="{height - bottom + 14}">{tick}</text>'
        )
    parts.append(f'<text class="name middle" x="{_WIDTH / 2:.0f}" y="{height - 6}">accuracy in %</text>')
    for i, (name, dots) in enumerate(rows):
        y = top + step * i + 23
        parts.append(f'<text class="name" x="8" y="{y - 9}">{escape(_short(name, 44))}</text>')
        places = [frame.x(dot.x) for dot in dots]
        parts.append(f'<path class="gap" d="M{min(places):.1f} {y}H{max(places):.1f}"/>')
        for place, dot, filled in zip(places, dots, [False] * (len(dots) - 1) + [True], strict=True):
            if filled and dot.low is not None and dot.high is not None:
                parts.append(f'<path class="whisker" d="M{frame.x(dot.low):.1f} {y}H{frame.x(dot.high):.1f}"/>')
            kind = "left" if filled else "claimed"
            parts.append(
                f'<circle class="{kind}" cx="{place:.1f}" cy="{y}" r="4.5"><title>{escape(dot.text)}</title></circle>'
            )
    return Markup(
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}</svg>"
    )


def scatter(
    points: Sequence[Sequence[float]],
    labels: Sequence[int],
    crosses: Sequence[bool],
    classes: Sequence[str],
    label: str,
) -> Markup:
    """Points in the plane by class, crosses for some of them, and the name of each class in its middle."""
    size = 320
    low = [min(point[i] for point in points) for i in (0, 1)]
    high = [max(point[i] for point in points) for i in (0, 1)]
    scale = (size - 16) / max(high[0] - low[0], high[1] - low[1], 1e-9)
    places = [(8 + (p[0] - low[0]) * scale, 8 + (p[1] - low[1]) * scale) for p in points]
    parts, names = [], []
    for k, name in enumerate(classes):
        plain = [place for place, own, cross in zip(places, labels, crosses, strict=True) if own == k and not cross]
        crossed = [place for place, own, cross in zip(places, labels, crosses, strict=True) if own == k and cross]
        style = _style(k)
        if plain:
            parts.append(f'<path class="points {style}" d="{"".join(f"M{x:.1f} {y:.1f}h0" for x, y in plain)}"/>')
            x, y = (sorted(place[i] for place in plain)[len(plain) // 2] for i in (0, 1))
            if len(classes) <= 20:  # more names would hide the points
                names.append(
                    f'<text class="class middle" x="{x:.1f}" y="{y + 4:.1f}">{escape(_short(name, 12))}</text>'
                )
        if crossed:
            drawn = "".join(f"M{x - 2:.1f} {y - 2:.1f}l4 4m0 -4l-4 4" for x, y in crossed)
            parts.append(f'<path class="crosses {style}" data-kind="attack" d="{drawn}"/>')
    return Markup(
        f'<svg class="chart plane" viewBox="0 0 {size} {size}" role="img" aria-label="{escape(label)}">'
        f"{''.join(parts)}{''.join(names)}</svg>"
    )


def ticks(low: float, high: float) -> list[float]:
    """Round numbers from low to high, at most six.

    Example:
        >>> ticks(0, 0.3), ticks(0, 60)
        ([0.0, 0.1, 0.2, 0.3], [0, 20, 40, 60])
    """
    if not high > low:
        return [low]
    raw = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    found = [float(f"{i * step:.6g}") for i in range(first, last + 1)]
    return [int(value) for value in found] if step >= 1 else found


@dataclass(frozen=True)
class _Frame:
    low_x: float
    high_x: float
    low_y: float
    high_y: float
    left: int = _LEFT
    right: int = _RIGHT

    def x(self, value: float) -> float:
        share = (value - self.low_x) / (self.high_x - self.low_x)
        return self.left + share * (_WIDTH - self.left - self.right)

    def y(self, value: float) -> float:
        share = (value - self.low_y) / (self.high_y - self.low_y)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)


def _axes(frame: _Frame, x_label: str, y_label: str) -> str:
    parts = []
    for value in ticks(frame.low_y, frame.high_y):
        y = frame.y(value)
        parts.append(
            f'<path class="grid" d="M{_LEFT} {y:.1f}H{_WIDTH - _RIGHT}"/>'
            f'<text class="tick end" x="{_LEFT - 5}" y="{y + 3.5:.1f}">{value:g}</text>'
        )
    below = _HEIGHT - _BOTTOM + 14
    parts += [
        f'<text class="tick middle" x="{frame.x(value):.1f}" y="{below}">{value:g}</text>'
        for value in ticks(frame.low_x, frame.high_x)
    ]
    middle = (_TOP + _HEIGHT - _BOTTOM) / 2
    parts.append(f'<text class="name middle" x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 5}">{escape(x_label)}</text>')
    parts.append(
        f'<text class="name middle" transform="translate(9 {middle:.0f}) rotate(-90)">{escape(y_label)}</text>'
    )
    return "".join(parts)


def _style(key: int, main: bool = False) -> str:
    """The class that gives colour and dash."""
    return "main" if main else f"s{key % _STYLES}"


def _line(line: Line, frame: _Frame, columns: Sequence[float]) -> str:
    parts, style = [], _style(line.key, line.main)
    banded = [dot for dot in line.dots if dot.low is not None and dot.high is not None]
    if len(banded) > 1:
        there = " ".join(f"{frame.x(dot.x):.1f},{frame.y(dot.high or 0):.1f}" for dot in banded)
        back = " ".join(f"{frame.x(dot.x):.1f},{frame.y(dot.low or 0):.1f}" for dot in reversed(banded))
        parts.append(f'<polygon class="band {style}" points="{there} {back}"/>')
    path = "L".join(f"{frame.x(dot.x):.1f} {frame.y(dot.y):.1f}" for dot in line.dots)
    parts.append(f'<path class="line {style}" d="M{path}"/>')
    for dot in line.dots:
        mark = _marker(frame.x(dot.x), frame.y(dot.y), line.key, line.main) if line.marked else ""
        parts.append(
            f'<g class="dot" data-column="{columns.index(dot.x)}" data-text="{escape(line.label)}: {escape(dot.text)}">'
            f"{mark}</g>"
        )
    return f'<g data-series="{line.key}">{"".join(parts)}</g>'


def _marker(x: float, y: float, key: int, main: bool) -> str:
    # A ninth series has the colour of the first, and the marker of the second.
    outline = _MARKERS[0 if main else (key + key // _STYLES) % len(_MARKERS)]
    return f'<path class="mark {_style(key, main)}" transform="translate({x:.1f} {y:.1f})" d="{outline}"/>'


def _range(values: Sequence[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    if low == high:
        return low - 0.5, high + 0.5
    return low, high


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
