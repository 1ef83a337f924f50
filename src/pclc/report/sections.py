"""The sections of the page as data: what the templates show, computed from the runs alone."""

import json
import math
from collections.abc import Sequence
from typing import Any

from pclc.evaluation import Accuracy
from pclc.report.charts import Dot, Line, line_chart, range_chart, swatch
from pclc.report.published import beside_published
from pclc.report.runs import Budget, Run
from pclc.report.series import WORST, Series, accuracy_of, plain_pgd, series_of
from pclc.report.table import NONE, Cell, Table, interval, number, percent, table
from pclc.report.verdicts import headline, verdict_cell, verdicts

_PARTS = ("folder", "network", "training", "evaluation", "audit", "inspection")  # of the conditions, in their order
_MOST_EPOCHS = 30  # rows of a run in the table behind the training curves


def summary(runs: Sequence[Run], budget: Budget | None) -> dict[str, Any]:
    """Verdicts first, then what plain PGD leaves beside the worst case, at one budget."""
    rows: list[list[Cell | str]] = []
    bars = []
    for run in runs:
        clean = pgd = worst = None
        if run.evaluation is not None:
            clean = accuracy_of(run.evaluation.clean)
            own = run.own(budget)
            if own is not None:
                outcome, worst = plain_pgd(run.evaluation, *own), accuracy_of(run.evaluation.survivors(*own))
                pgd = None if outcome is None else accuracy_of(outcome.robust)
        lost = None if pgd is None or worst is None else pgd.value - worst.value
        rows.append(
            [
                run.name,
                percent(clean),
                percent(pgd),
                percent(worst),
                interval(worst),
                percent(lost),
                number(worst.n if worst else None),
                verdict_cell(run, budget),
            ]
        )
        if worst is not None:
            left = Dot(100 * worst.value, 0, f"worst case {worst}", 100 * worst.low, 100 * worst.high)
            bars.append((run.name, [*([Dot(100 * pgd.value, 0, f"plain PGD {pgd}")] if pgd else []), left]))
    where = f"{budget[0]} eps {budget[1]:.4g}" if budget else "no budget"
    columns = ("run", "clean", "plain PGD", "worst case", "95 % interval", "lost", "images", "audit")
    label = f"Accuracy at {where}: plain PGD and the worst case of every run. The table beside it has the numbers."
    return {
        "headline": headline(runs),
        "verdicts": verdicts(runs, budget),
        "chart": range_chart(bars, label) if bars else None,
        "chart_title": f"Accuracy at {where}",
        "table": table(f"Accuracy in % at {where}", columns, rows),
        "how_to_read": (
            "Plain PGD is PGD on cross-entropy, the figure that papers report. The worst case is the share of images "
            "that are classified correctly as they are and under every attack of the evaluation. An audit runs attacks "
            "of its own, including its own plain PGD, on its own choice of images, so its figures can differ from "
            "those of the table. What is really left is at most the smaller of the two. Lost: plain PGD minus the "
            "worst case. A verdict is about the claimed figure, that of plain PGD unless another was stated, and not "
            "about the model: a low figure that is not refuted is still low. Eps says how far an attack may go, with "
            "pixels from 0 to 1: each pixel by eps (Linf), or the whole image by that length (L2)."
        ),
    }


def accuracy(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Accuracy over eps, a panel for each run or for each attack, and every figure in a table."""
    measured = [(run, series_of(run.evaluation)) for run in runs if run.evaluation is not None]
    if not measured:
        return None
    groups = []
    for norm in dict.fromkeys(line.norm for _, lines in measured for line in lines):
        of_norm = [(run.name, [line for line in lines if line.norm == norm]) for run, lines in measured]
        groups.append({"norm": norm, "views": [_by_run(of_norm, norm), _by_attack(of_norm, norm)]})
    notes = [(run.name, run.evaluation.notes) for run, _ in measured if run.evaluation and run.evaluation.notes]
    return {"groups": groups, "table": _every_figure(measured), "notes": notes}


def published(runs: Sequence[Run]) -> Table | None:
    """The paper's figures beside ours, where there are any."""
    rows = [
        [
            run.name,
            beside.figure.table,
            beside.figure.row,
            beside.attack,
            number(beside.figure.value),
            percent(beside.ours.value),
            interval(beside.ours),
            Cell(
                f"{100 * beside.ours.value - beside.figure.value:+.1f}", 100 * beside.ours.value - beside.figure.value
            ),
            "the paper's protocol as implemented here" if beside.same_training else "other settings",
            " ".join(remark.text for remark in beside.figure.remarks) or NONE,
        ]
        for run in runs
        for beside in beside_published(run)
    ]
    columns = ("run", "table", "row", "attack", "paper", "here", "95 % interval", "difference", "training", "remarks")
    return table("Accuracy in %, the paper's and ours", columns, rows) if rows else None


def training(runs: Sequence[Run]) -> dict[str, Any] | None:
    """Accuracy and loss over epochs."""
    trained = [run for run in runs if run.metrics]
    if not trained:
        return None
    panels = []
    for key, title, scale in (("accuracy", "Accuracy in %", 100), ("loss", "Loss", 1)):
        lines = [
            Line(
                i,
                run.name,
                tuple(
                    Dot(entry["epoch"], scale * entry[key], f"{scale * entry[key]:.4g} ({entry['criterion']})")
                    for entry in run.metrics
                    if math.isfinite(entry[key])  # a training that diverged has no place in the chart
                ),
                marked=False,
            )
            for i, run in enumerate(trained)
        ]
        label = f"{title} on the training images over epochs. The table below has the numbers."
        span = (0.0, 100.0) if key == "accuracy" else None
        panels.append({"title": title, "chart": line_chart(lines, label, "epoch", title.lower(), span)})
    rows = [
        [
            run.name,
            number(entry["epoch"]),
            entry["criterion"],
            number(entry["lr"]),
            number(entry["loss"], 4),
            percent(entry["accuracy"]),
        ]
        for run in trained
        for entry in _thinned(run.metrics)
    ]
    caption = f"Training, at most {_MOST_EPOCHS} epochs of a run"
    return {
        "legend": [{"key": i, "label": run.name, "swatch": swatch(i)} for i, run in enumerate(trained)],
        "panels": panels,
        "table": table(caption, ("run", "epoch", "loss name", "learning rate", "loss", "accuracy %"), rows),
    }


def conditions(runs: Sequence[Run]) -> dict[str, Any]:
    """What the figures hold for: versions, devices, hashes, configurations."""
    columns = [_conditions_of(run) for run in runs]
    keys = sorted(
        dict.fromkeys(key for column in columns for key in column), key=lambda key: _PARTS.index(key.partition(":")[0])
    )
    rows = [[key, *(column.get(key, NONE) for column in columns)] for key in keys]
    shown = [(run.name, json.dumps(run.config, indent=1)) for run in runs if run.config is not None]
    names = ("condition", *(run.name for run in runs))
    return {"table": table("Conditions of every run", names, rows, sortable=False), "configurations": shown}


def _conditions_of(run: Run) -> dict[str, str]:
    """What is known of the training, and of each result, which other versions or another device may have made."""
    found = {"folder": str(run.path)}
    if run.config is not None:
        found["network"] = run.config["run"]["model"]["name"]
        found["training: data"] = run.config["run"]["dataset"]["name"]
        found["training: versions"] = _versions(run.config.get("versions", {}))
        found["training: hash of the configuration"] = run.config.get("hash", NONE)
    if run.training is not None:
        found["training: device"] = run.training.get("device") or NONE
        found["training: seconds"] = f"{run.training['seconds']:.1f}"
    for name, about in run.conditions.items():
        found[f"{name}: data"] = about["data"] + (", rounded to 8 bits" if about.get("eight_bit") else "")
        found[f"{name}: device"] = ", ".join(filter(None, (about["device"], about.get("precision"))))
        found[f"{name}: versions"] = _versions(about["versions"])
        for what, key in (("model", "model_hash"), ("data", "data_hash"), ("configuration", "config_hash")):
            if key in about:
                found[f"{name}: hash of the {what}"] = about[key] or NONE
    if run.evaluation is not None:
        found["evaluation: seconds"] = f"{sum(outcome.seconds for outcome in run.evaluation.outcomes):.1f}"
    return found


def _versions(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items()) or NONE


def _by_run(measured: Sequence[tuple[str, list[Series]]], norm: str) -> dict[str, Any]:
    labels = _attack_labels(measured)
    panels = [
        _panel(name, "attack", norm, [_drawn(line, line.label, labels.index(line.label), True) for line in lines])
        for name, lines in measured
    ]
    entries = [{"key": i, "label": label, "swatch": swatch(i, label == WORST)} for i, label in enumerate(labels)]
    return {"kind": "run", "legend_title": "Attacks", "legend": entries, "panels": panels}


def _by_attack(measured: Sequence[tuple[str, list[Series]]], norm: str) -> dict[str, Any]:
    runs = list(enumerate(measured))
    *labels, worst = _attack_labels(measured)
    panels = [
        _panel(label, "run", norm, [_drawn(x, name, i) for i, (name, lines) in runs for x in lines if x.label == label])
        for label in (worst, *labels)
    ]
    entries = [{"key": i, "label": name, "swatch": swatch(i)} for i, (name, _) in runs]
    return {"kind": "attack", "legend_title": "Runs", "legend": entries, "panels": panels}


def _attack_labels(measured: Sequence[tuple[str, list[Series]]]) -> list[str]:
    """Every attack once, the worst case last."""
    labels = dict.fromkeys(line.label for _, lines in measured for line in lines if line.label != WORST)
    return [*labels, WORST]


def _drawn(series: Series, name: str, key: int, among_attacks: bool = False) -> Line:
    """The worst case has a band, and stands out where it is drawn among attacks."""
    is_worst = series.label == WORST
    dots = []
    for eps, found in series.points:
        band = (100 * found.low, 100 * found.high) if is_worst else ()
        dots.append(Dot(eps, 100 * found.value, str(found), *band))
    return Line(key, name, tuple(dots), main=is_worst and among_attacks)


def _panel(title: str, every: str, norm: str, lines: list[Line]) -> dict[str, Any]:
    label = f"Accuracy in % against eps ({norm}), {title}: every {every}. The table below has the numbers."
    return {"title": title, "chart": line_chart(lines, label, f"eps ({norm})", "accuracy in %", (0.0, 100.0))}


def _every_figure(measured: Sequence[tuple[Run, list[Series]]]) -> Table:
    rows: list[list[Cell | str]] = []
    for run, lines in measured:
        found = run.evaluation
        assert found is not None
        rows.append(
            [run.name, "clean", Cell(NONE), Cell("0", 0.0), *_figures(accuracy_of(found.clean)), *[Cell(NONE)] * 4]
        )
        for outcome in found.outcomes:
            sizes, forwards = outcome.perturbations, outcome.forwards
            rows.append(
                [
                    run.name,
                    outcome.attack,
                    outcome.norm or NONE,
                    number(outcome.eps, 4),
                    *_figures(accuracy_of(outcome.robust)),
                    number(sizes.mean_linf),
                    number(sizes.mean_l2),
                    number(None if forwards is None else forwards / found.n, 4),
                    percent(outcome.zero_gradient_share),
                ]
            )
        for line in lines:
            if line.label == WORST:
                rows += [
                    [run.name, WORST, line.norm, number(point.eps, 4), *_figures(point.accuracy), *[Cell(NONE)] * 4]
                    for point in line.points[1:]
                ]
    columns = (
        "run", "attack", "norm", "eps", "accuracy %", "95 % interval", "images", "mean Linf", "mean L2",
        "forward passes", "zero gradients %",
    )  # fmt: skip
    caption = "Every figure; sizes are means over the perturbations that turned an image, passes are per image"
    return table(caption, columns, rows)


def _figures(accuracy: Accuracy) -> tuple[Cell, Cell, Cell]:
    return percent(accuracy.value), interval(accuracy), number(accuracy.n)


def _thinned(metrics: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Every k-th epoch, and the last one."""
    step = -(-len(metrics) // _MOST_EPOCHS)
    chosen = list(metrics[step - 1 :: step])
    return chosen if chosen and chosen[-1] is metrics[-1] else [*chosen, metrics[-1]]
