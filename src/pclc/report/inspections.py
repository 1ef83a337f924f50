"""One model looked at from all sides, as data for the page: images, confusions, gaps, ranks and t-SNE."""

import base64
from collections import Counter
from collections.abc import Sequence
from typing import Any

from pclc.analysis.ranks import RANKS
from pclc.report.charts import Dot, Line, line_chart, scatter, swatch
from pclc.report.png import data_uri
from pclc.report.runs import Run
from pclc.report.table import Cell, Table, number, percent, table

_TOP = 3  # classes whose probabilities are shown


def inspections(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Images, confusions, ranks and t-SNE of each run that has them."""
    return [_inspection(run.name, run.inspection) for run in runs if run.inspection is not None]


def ranks_legend() -> list[dict[str, Any]]:
    """What the lines of all charts of ranks are."""
    return [{"key": i, "label": f"rank {rank}", "swatch": swatch(i)} for i, rank in enumerate(RANKS)]


def _inspection(name: str, found: dict[str, Any]) -> dict[str, Any]:
    classes, eps = found["classes"], found["eps"]
    budget = "" if eps is None else f" at {found['norm']} eps {eps:.4g}"
    plane = found["embedding"]
    return {
        "name": name,
        "sentence": (
            f"{found['turned']:,} of {found['n']:,} images ({found['conditions']['data']}) are classified correctly, "
            f"and turned by {found['attack']}{budget}."
        ),
        "examples": [_example(example, classes, found["shape"], found["norm"]) for example in found["examples"]],
        "confusion": _confusion(name, found["confusion"][-1], classes),
        "gaps": _gaps(name, found["gaps"]),
        **_ranks(name, found["ranks"]),
        **({"plane": None} if plane is None else _plane(name, plane, classes)),
    }


def _example(example: dict[str, Any], classes: list[str], shape: list[int], norm: str | None) -> dict[str, Any]:
    images = {key: data_uri(base64.b64decode(example[key]), *shape) for key in ("clean", "adversarial", "perturbation")}
    # In the picture the largest change is half of the range.
    factor = 0.5 / example["linf"] if example["linf"] else 1.0
    size = f"L2 {example['l2']:.3g}" if norm == "L2" else f"Linf {example['linf']:.3g}"
    label = example["label"]
    bars = {key: _bars(example[key], classes, label) for key in ("before", "after")}
    return {
        "index": example["index"],
        "label": classes[label],
        "factor": f"{factor:.3g}",
        "size": size,
        **images,
        **bars,
    }


def _bars(probabilities: list[float], classes: list[str], label: int) -> list[dict[str, Any]]:
    """The most probable classes, and the true one in any case."""
    order = sorted(range(len(classes)), key=lambda k: -probabilities[k])[:_TOP]
    if label not in order:
        order[-1] = label
    return [
        {
            "name": classes[k],
            "percent": f"{100 * probabilities[k]:.2f}",
            "text": f"{100 * probabilities[k]:.1f} %",
            "true": k == label,
        }
        for k in order
    ]


def _confusion(name: str, found: dict[str, Any], classes: list[str]) -> Table:
    rows = []
    for true, counts in zip(classes, found["counts"], strict=True):
        total = sum(counts) or 1
        rows.append([Cell(true), *(Cell(f"{c:,}", float(c), kind=f"{100 * c / total:.0f}") for c in counts)])
    return Table(
        f"Confusion of {name} under {found['name']}", ("true", *classes), tuple(map(tuple, rows)), sortable=False
    )


def _gaps(name: str, gaps: list[dict[str, Any]]) -> Table:
    rows = [[gap["name"], number(gap["mean"]), number(gap["standard_error"]), percent(gap["correct"])] for gap in gaps]
    columns = ("images", "mean gap", "standard error", "right %")
    return table(f"Probability gap of {name}: true class minus the most probable false one", columns, rows)


def _ranks(name: str, found: dict[str, Any] | None) -> dict[str, Any]:
    if found is None:
        return {"ranks": None}
    grid = list(zip(found["eps"], found["new"], found["counts"], strict=True))
    shares = [(eps, new, [100 * count / new for count in counts]) for eps, new, counts in grid if new]
    lines = [
        Line(i, f"rank {rank}", tuple(Dot(eps, share[i], f"{share[i]:.1f} % of {new}") for eps, new, share in shares))
        for i, rank in enumerate(RANKS)
    ]
    title = f"Ranks of new misclassifications, {found['attack']}"
    rows = [
        [number(eps, 4), number(new), *(percent(count / new if new else None) for count in counts)]
        for eps, new, counts in grid
    ]
    caption = f"Ranks of {name} in % of new misclassifications under {found['attack']}"
    label = f"{title}, {name}. The table below has the numbers."
    return {
        "ranks": table(caption, ("eps", "new", *(f"rank {rank}" for rank in RANKS)), rows),
        "ranks_title": title,
        "ranks_chart": line_chart(lines, label, "eps", "share in %", (0.0, 100.0)),
    }


def _plane(name: str, plane: dict[str, Any], classes: list[str]) -> dict[str, Any]:
    labels, attacks = plane["labels"], plane["successful_attack"]
    label = f"t-SNE of {name}: clean images and successful attacks by class. The table below counts them."
    counts = Counter(zip(labels, attacks, strict=True))
    rows: list[list[Cell | str]] = [
        [each, number(counts[k, False]), number(counts[k, True])] for k, each in enumerate(classes)
    ]
    return {
        "plane": scatter(plane["points"], labels, attacks, classes, label),
        "overlap": f"For {plane['overlap']:.1f} % of the clean images, most neighbours are of other classes.",
        "plane_table": table(f"Points of {name}", ("class", "clean images", "successful attacks"), rows),
    }
