"""What a grid will cost: from what finished cells took on this device, otherwise from passes and one timed batch."""

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import mean
from typing import Any

import torch
from torch.nn import functional as F

from pclc.attacks import Attack, AutoAttack
from pclc.data.registry import describe
from pclc.execution import Execution
from pclc.experiments.experiment import Cell, Training
from pclc.experiments.store import Store
from pclc.experiments.trained import warm_up_of
from pclc.models import create_model

# What multiplies the passes of an attack.
_FACTORS = ("steps", "restarts", "search_steps", "samples", "targets", "queries", "draws")


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a grid before it runs.

    Attributes:
        cell: what is to be done.
        finished: whether the store has it.
        trained: whether the store has its model.
        seconds: what is left to do, on one device with nothing beside it.
        measured: whether all of that is known from finished cells; otherwise it is at most so much, roughly.
    """

    cell: Cell
    finished: bool
    trained: bool
    seconds: float
    measured: bool


def plan_grid(store: Store, cells: Sequence[Cell], execution: Execution) -> list[PlannedCell]:
    """What is there, and what the rest will cost; a training that several cells need is counted with the first."""
    known = _Known(store.results(), execution)
    counted: set[str] = set()
    planned = []
    for cell in cells:
        if store.load(cell) is not None:
            planned.append(PlannedCell(cell, True, True, 0.0, True))
            continue
        parts: list[tuple[float, bool]] = []
        for training in filter(None, (cell.training, cell.substitute)):
            if training.hash not in counted and not store.is_trained(training):
                parts += _training_costs(store, training, known, counted)
            counted.add(training.hash)
        parts += [known.attack(cell, attack.text, attack.attack, cell.examples) for attack in cell.attacks]
        parts += known.analyses(cell)
        seconds = sum(part for part, _ in parts)
        trained = store.is_trained(cell.training)
        planned.append(PlannedCell(cell, False, trained, seconds, all(measured for _, measured in parts)))
    return planned


def passes(attack: Attack) -> int:
    """Passes an example at the most.

    Example:
        >>> from pclc.attacks import FGSM, PGD
        >>> passes(FGSM(eps=0.1)), passes(PGD(eps=0.1, alpha=0.01, steps=40, restarts=2))
        (1, 80)
    """
    if isinstance(attack, AutoAttack):
        return sum(passes(component) for component in attack.components().values())
    return math.prod(int(getattr(attack, name, 1) or 1) for name in _FACTORS)


class _Known:
    """Seconds an epoch and seconds an example of finished work on the same kind of device."""

    def __init__(self, results: Iterable[dict[str, Any]], execution: Execution) -> None:
        self.execution = execution
        device = execution.torch_device
        here = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
        self.epochs: dict[tuple[object, ...], list[float]] = {}
        self.examples: dict[tuple[object, ...], list[float]] = {}
        self.analysed: dict[str, list[float]] = {}
        for result in results:
            about = result["cell"]["training"]
            key = about["dataset"], about["model"]
            training = result["training"]
            if training["device"] == here:
                crafting = (about["train"].get("adversarial") or {}).get("steps", 0)
                self.epochs.setdefault((*key, crafting), []).append(training["seconds"] / training["epochs"])
            if result["conditions"]["device"] == here:
                for attack in result["attacks"]:
                    self.examples.setdefault((*key, attack["attack"]), []).append(attack["seconds"] / result["n"])
                self.analysed.setdefault(_analyses_key(result["cell"]), []).append(result["seconds"]["analyses"])

    def training(self, training: Training, epochs: int) -> tuple[float, bool]:
        recipe = training.config.adversarial
        crafting = (recipe.steps or 0) if recipe else 0
        found = self.epochs.get((training.dataset, training.model, crafting))
        if found:
            return epochs * mean(found), True
        images = describe(training.dataset).counts["train"]
        return epochs * images * (1 + crafting) * _seconds_of_a_pass(training, self.execution), False

    def attack(self, cell: Cell, text: str, attack: Attack, examples: int | None) -> tuple[float, bool]:
        counts = describe(cell.training.dataset).counts
        held_out = round(cell.training.config.validation * counts["train"])
        n = examples or (held_out if cell.split == "validation" else counts["test"])
        found = self.examples.get((cell.training.dataset, cell.training.model, text))
        if found:
            return n * mean(found), True
        return n * passes(attack) * _seconds_of_a_pass(cell.training, self.execution), False

    def analyses(self, cell: Cell) -> list[tuple[float, bool]]:
        found = self.analysed.get(_analyses_key(cell.as_dict()))
        if found:
            return [(mean(found), True)]
        limits = [(analysis, [n for n in (analysis.examples, cell.examples) if n]) for analysis in cell.analyses]
        return [
            self.attack(cell, attack.text, attack.attack, min(few, default=None))
            for analysis, few in limits
            for attack in analysis.attacks
        ]


def _analyses_key(content: dict[str, Any]) -> str:
    """What the time of a cell's analyses depends on."""
    training = content["training"]
    return json.dumps([training["dataset"], training["model"], content["analyses"], content.get("examples")])


def _training_costs(store: Store, training: Training, known: _Known, counted: set[str]) -> list[tuple[float, bool]]:
    """Of the epochs that are left to do: a first phase that is shared may be done, or counted elsewhere."""
    epochs = sum(phase.epochs for phase in training.config.phases)
    first = warm_up_of(training)
    if first is not None and (first.hash in counted or store.is_trained(first)):
        epochs -= first.config.epochs
    if first is not None:
        counted.add(first.hash)
    return [known.training(training, epochs)]


def _seconds_of_a_pass(training: Training, execution: Execution) -> float:
    return _timed(training.model, training.dataset, execution)


@cache
def _timed(model: str, dataset: str, execution: Execution) -> float:
    """Seconds an image forward and backward, from one batch after a first one that is not counted."""
    description = describe(dataset)
    channels, size, _ = description.shape
    with torch.random.fork_rng(devices=[]):
        network = create_model(model, description.num_classes, in_channels=channels, image_size=size)
        network = execution.place(network).train()
        n = 256 if execution.torch_device.type == "cuda" else 32
        x = torch.rand(n, *description.shape, device=execution.torch_device)
        y = torch.zeros(n, dtype=torch.int64, device=x.device)
        for _ in range(2):
            started = time.perf_counter()
            with execution.arithmetic():
                loss = F.cross_entropy(network(x).float(), y)
            loss.backward()  # type: ignore[no-untyped-call]
            if x.is_cuda:
                torch.cuda.synchronize(x.device)
    return (time.perf_counter() - started) / n
