"""What all of it costs, data set by data set, from what finished cells took: nothing is timed for the page."""

from collections.abc import Iterable, Sequence

from pclc.experiments.costs import Cost, known_of_most, plan_grid
from pclc.experiments.experiment import Experiment
from pclc.experiments.pages_text import markdown_table
from pclc.experiments.store import Store
from pclc.experiments.values import Selection, possible_cells


def plan_section(store: Store, experiments: Sequence[Experiment], selection: Selection) -> str:
    """A table of the data sets: cells, how many are finished, what all costs from the beginning, and what is left."""
    known = known_of_most(store)
    if known is None:
        return "Nothing has been run yet, so no cost is known."
    places = [(each.name, cell) for each in experiments for cell in possible_cells(store, each, selection)]
    cells = list({cell.hash: cell for _, cell in places}.values())
    planned = list(zip(plan_grid(None, cells, known), plan_grid(store, cells, known), strict=True))
    rows = []
    for dataset in [*dict.fromkeys(cell.training.dataset for cell in cells), "all"]:
        found = [plans for plans in planned if dataset in ("all", plans[0].cell.training.dataset)]
        names = dict.fromkeys(name for name, cell in places if cell.training.dataset == dataset)
        rows.append(
            {
                "data set": dataset,
                "experiments": ", ".join(names) or "all",
                "cells": str(len(found)),
                "finished": str(sum(left.finished for _, left in found)),
                "training": _shown(every.training for every, _ in found),
                "attacks, analyses, audits": _shown(every.rest for every, _ in found),
                "left": _shown(left.cost for _, left in found if not left.finished),
            }
        )
    about = (
        f"What everything costs from the start, and what is left, on one {known.device}, one cell after the other, "
        "judged by the time that finished cells took there. Estimates (~) come from the same network on other data "
        "sets, scaled by images and pixels; for a network that was never run, from the number of passes that finished "
        "cells made through another one and the size of its layers. Cells that ran side by side slowed each other "
        "down, and their seconds count in full. Work that several experiments share is counted once. "
        "`pclc reproduce all --plan` shows the same by column, for this device and yours; "
        "`pclc reproduce all --datasets kmnist` runs what is left of a data set."
    )
    return f"{about}\n\n{markdown_table(rows)}"


def _shown(costs: Iterable[Cost]) -> str:
    """The sum of some costs.

    Example:
        >>> _shown([Cost(50.0), Cost(9.0, measured=False)]), _shown([Cost(50.0)]), _shown([])
        ('~59 s', '50 s', '-')
    """
    found = list(costs)
    return str(sum(found, Cost())) if found else "-"
