"""What all of it costs, data set by data set, from what finished cells took: nothing is timed for the page."""

import math
from collections import Counter
from collections.abc import Sequence
from statistics import mean

from pclc.data.registry import describe
from pclc.experiments.costs import Known, attack_key, crafting_passes, duration
from pclc.experiments.experiment import Cell, Experiment, Training
from pclc.experiments.pages_text import markdown_table
from pclc.experiments.store import Store
from pclc.experiments.trained import warm_up_of
from pclc.experiments.values import Selection, choose

_Part = tuple[float, bool]  # seconds, and whether they were measured


def plan_section(store: Store, experiments: Sequence[Experiment], selection: Selection) -> str:
    """A table of the data sets: cells, how many are finished, and the cost of all from the beginning."""
    device, known = _known(store)
    cells: dict[str, dict[str, Cell]] = {}
    names: dict[str, list[str]] = {}
    for each in experiments:
        for cell in _cells(store, each, selection):
            cells.setdefault(cell.training.dataset, {})[cell.hash] = cell
            names.setdefault(cell.training.dataset, []).append(each.name)
    rows = []
    for dataset, found in cells.items():
        training, attacks = _costs(list(found.values()), known)
        rows.append(
            {
                "data set": dataset,
                "experiments": ", ".join(dict.fromkeys(names[dataset])),
                "cells": str(len(found)),
                "finished": str(sum(store.load(cell) is not None for cell in found.values())),
                "training": _shown(training),
                "attacks, analyses, audits": _shown(attacks),
                "command": f"`pclc reproduce all --datasets {dataset}`",
            }
        )
    if not device:
        return f"Nothing has been run, so that no cost is known yet.\n\n{markdown_table(rows)}"
    about = (
        f"Cost of everything from the beginning, on one {device}, as finished cells took it there. What was not run on "
        "a data set is estimated from the same network on others, by the number of images and pixels, or from the "
        "passes that it may take, which is too much where examples fall early. Cells that ran side by side slow each "
        "other down, and their seconds count in full. What several experiments share is counted once."
    )
    return f"{about}\n\n{markdown_table(rows)}"


def _cells(store: Store, experiment: Experiment, selection: Selection) -> list[Cell]:
    """All of an experiment; where settings are not chosen yet, those that may be."""
    tuning = selection.tuning_cells(experiment)
    choices = {cell.column: 0 for cell in tuning} | choose(store, tuning)
    return [*tuning, *selection.cells(experiment, choices)]


def _known(store: Store) -> tuple[str, Known]:
    """The device with the most results, and what is known from them."""
    results = list(store.results())
    devices = Counter(result["conditions"]["device"] for result in results)
    device = max(sorted(devices), key=lambda name: devices[name], default="")
    passes: dict[tuple[str, str | None], list[float]] = {}  # seconds of a pass and a pixel, by network and precision
    for result in results:
        about = result["cell"]["training"]
        if result["training"]["device"] == device:
            description = describe(about["dataset"])
            images = result["training"]["epochs"] * description.counts["train"]
            passed = images * (1 + crafting_passes(about["train"].get("adversarial"))) * math.prod(description.shape)
            seconds = result["training"]["seconds"] / passed
            passes.setdefault((about["model"], about.get("precision")), []).append(seconds)

    def seconds_of_a_pass(training: Training) -> float:
        found = passes.get((training.model, training.precision))
        return mean(found) * math.prod(describe(training.dataset).shape) if found else math.nan

    return device, Known(results, device, seconds_of_a_pass)


def _costs(cells: Sequence[Cell], known: Known) -> tuple[list[_Part], list[_Part]]:
    """Training, and everything else; what several cells share once."""
    trainings = {training.hash: training for cell in cells for training in (cell.training, cell.substitute) if training}
    phases: set[str] = set()
    trained = []
    for training in trainings.values():
        epochs = sum(phase.epochs for phase in training.config.phases)
        first = warm_up_of(training)
        if first is not None and first.hash in phases:
            epochs -= first.config.epochs
        phases |= {first.hash} if first is not None else set()
        trained.append(known.training(training, epochs))
    attacks = {
        attack_key(cell, attack): known.attack(cell, attack, cell.examples) for cell in cells for attack in cell.attacks
    }
    rest = [part for cell in cells for part in (*known.analyses(cell), *known.audit(cell))]
    return trained, [*attacks.values(), *rest]


def _shown(parts: Sequence[_Part]) -> str:
    """What is known of a cost, and of how many parts nothing is.

    Example:
        >>> _shown([(50.0, True), (9.0, False), (math.nan, False)]), _shown([(50.0, True)]), _shown([(math.nan, False)])
        ('59 s, estimated; 1 of 3 not measured', '50 s', 'not measured')
    """
    known = [(seconds, measured) for seconds, measured in parts if not math.isnan(seconds)]
    if not known:
        return "not measured" if parts else "-"
    estimated = "" if all(measured for _, measured in known) else ", estimated"
    left = f"; {len(parts) - len(known)} of {len(parts)} not measured" if len(known) < len(parts) else ""
    return duration(sum(seconds for seconds, _ in known)) + estimated + left
