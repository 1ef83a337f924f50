"""What ``pclc reproduce --plan`` prints: what is there, and what the rest takes here and where most was run."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import typer

from pclc.cli.output import print_table
from pclc.experiments.costs import Cost, Known, PlannedCell, known_here, known_of_most, plan_grid
from pclc.experiments.experiment import Cell, Experiment
from pclc.experiments.runner import GridSettings
from pclc.experiments.store import Store
from pclc.experiments.table import place_of
from pclc.experiments.values import Selection, possible_cells

_Plans = tuple[PlannedCell, ...]  # of one cell, by device


def show_plan(chosen: Sequence[Experiment], selection: Selection, settings: GridSettings, as_json: bool) -> None:
    """Print a line for each column, and sums; as JSON each cell."""
    store = Store(settings.store)
    here, most = known_here(store, settings.execution, settings.threads), known_of_most(store)
    known = [here, *([most] if most is not None and most.device != here.device else [])]
    places = [(each, cell) for each in chosen for cell in possible_cells(store, each, selection)]
    # The same cell in several experiments runs once, and is counted with the first of them.
    plans = list(zip(*(plan_grid(store, [cell for _, cell in places], each) for each in known), strict=True))
    names = [each.name for each, _ in places]
    costs = [_sum(plan[i] for plan in plans) for i in range(len(known))]
    if as_json:
        rows = [_row(name, plan[0]) for name, plan in zip(names, plans, strict=True)]
        devices = [
            {"device": each.device, "seconds": cost.seconds, "measured": cost.measured}
            for each, cost in zip(known, costs, strict=True)
        ]
        content = {"cells": rows, "seconds": costs[0].seconds, "devices": devices, "limits": selection.limits}
        typer.echo(json.dumps(content, indent=1))
        return
    sums = []
    for each in chosen:
        own = [plan for name, plan in zip(names, plans, strict=True) if name == each.name]
        _print_columns(each, own, known)
        sums.append({"experiment": each.name, **_left(own, known)})
    if len(sums) > 1:
        print_table(sums, title="\nAll of them:")
    cells = {plan.cell.hash: plan.finished for plan, *_ in plans}
    limits = f" ({selection.limits})" if selection.limits else ""
    left = ", ".join(f"{cost} on {each.device}" for each, cost in zip(known, costs, strict=True))
    typer.echo(f"\n{len(cells)} cells{limits}, {sum(cells.values())} of them finished; left: {left}")
    typer.echo(
        "Times are for one cell after another, each on one device, or on --threads cores. ~ marks an estimate, from "
        "other data sets or from the number of passes, where no finished cell did the same on such a device."
    )


def _print_columns(each: Experiment, plans: Sequence[_Plans], known: Sequence[Known]) -> None:
    """What is left of an experiment, by column."""
    columns: dict[tuple[str, str, str], list[_Plans]] = {}
    for plan in plans:
        columns.setdefault((*place_of(each, plan[0].cell), _column(plan[0].cell)), []).append(plan)
    rows = [
        {"data set": dataset, "network": network, "column": column, **_left(found, known, seeds=True)}
        for (dataset, network, column), found in columns.items()
        if not all(plan.finished for plan, *_ in found)
    ]
    if rows:
        print_table(rows, title=f"\n{each.name}: {each.title}")


def _left(plans: Sequence[_Plans], known: Sequence[Known], seeds: bool = False) -> dict[str, str]:
    """How many of some cells are left, and how long they take on each device."""
    left = [plan.cell for plan, *_ in plans if not plan.finished]
    row = {"left": f"{len(left)} of {len(plans)}"}
    if seeds:
        found = sorted({cell.training.config.seed for cell in left})
        in_a_row = len(found) > 2 and found[-1] - found[0] == len(found) - 1
        row["seeds"] = f"{found[0]}-{found[-1]}" if in_a_row else ", ".join(map(str, found))
    for i, each in enumerate(known):
        row[f"on {each.device}"] = str(_sum(plan[i] for plan in plans)) if left else "-"
    return row


def _sum(plans: Iterable[PlannedCell]) -> Cost:
    return sum((plan.cost for plan in plans), Cost())


def _column(cell: Cell) -> str:
    return cell.column + (" (tuning)" if cell.split == "validation" else "")


def _row(name: str, plan: PlannedCell) -> dict[str, Any]:
    training = plan.cell.training
    return {
        "experiment": name,
        "data set": training.dataset,
        "network": training.model,
        "column": _column(plan.cell),
        "seed": str(training.config.seed),
        "cell": plan.cell.hash,
        "state": "finished" if plan.finished else "trained" if plan.trained else "to do",
        "seconds": plan.cost.seconds,
        "cost": "-" if plan.finished else "measured" if plan.cost.measured else "estimated",
    }
