"""What a grid will cost: from what finished cells took on this device, otherwise from passes and one timed batch."""

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import Any

import torch
from torch.nn import functional as F

from pclc.attacks import Attack, AutoAttack
from pclc.data.registry import describe
from pclc.execution import Execution
from pclc.experiments.experiment import Cell, NamedAttack, Training
from pclc.experiments.store import Store
from pclc.experiments.trained import warm_up_of
from pclc.models import create_model

# What multiplies the passes of an attack.
_FACTORS = ("steps", "restarts", "search_steps", "samples", "targets", "queries", "draws")


_Times = dict[tuple[object, ...], dict[str, list[float]]]  # by network and what is done, and by data set


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
    """What is there, and what the rest will cost; a training or attack of several cells is counted with the first."""
    device = execution.torch_device
    here = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"

    def seconds_of_a_pass(training: Training) -> float:
        own = replace(execution, precision=training.precision) if training.precision else execution
        return _timed(training.model, training.dataset, own)

    known = Known(store.results(), here, seconds_of_a_pass)
    counted: set[str] = set()
    attacked: set[tuple[object, ...]] = set()
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
        new = {attack_key(cell, attack): attack for attack in cell.attacks}
        parts += [known.attack(cell, attack, cell.examples) for key, attack in new.items() if key not in attacked]
        attacked |= new.keys()
        parts += [*known.analyses(cell), *known.audit(cell)]
        seconds = sum(part for part, _ in parts)
        trained = store.is_trained(cell.training)
        planned.append(PlannedCell(cell, False, trained, seconds, all(measured for _, measured in parts)))
    return planned


def attack_key(cell: Cell, attack: NamedAttack) -> tuple[object, ...]:
    """What is computed once, however many cells ask for it."""
    substitute = cell.substitute.hash if cell.substitute and attack.transfer else None
    return cell.training.hash, cell.split, cell.examples, cell.precision, str(attack.attack), substitute


def duration(seconds: float) -> str:
    """In the unit that suits it.

    Example:
        >>> duration(50), duration(4000)
        ('50 s', '1.1 h')
    """
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


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


class Known:
    """Seconds of finished work on the same kind of device, an image: training it once, attacking it.

    What was not done on a data set is taken from others with the same network, by the number of pixels, and is then an
    estimate; what was not done at all from the passes that it takes. Attacks on adversarially trained models are a
    matter of their own: most images of another model fall early, and are attacked no more.

    Args:
        results: of finished cells.
        device: its name, as results have it.
        seconds_of_a_pass: forward and backward, an image; not a number where that is not known.
    """

    def __init__(
        self, results: Iterable[dict[str, Any]], device: str, seconds_of_a_pass: Callable[[Training], float]
    ) -> None:
        self.seconds_of_a_pass = seconds_of_a_pass
        self.trained: _Times = {}
        self.attacked: _Times = {}
        self.analysed: dict[str, list[float]] = {}
        for result in results:
            about = result["cell"]["training"]
            training, model = result["training"], about["model"]
            if training["device"] == device:
                images = training["epochs"] * describe(about["dataset"]).counts["train"]
                key = model, crafting_passes(about["train"].get("adversarial")), about.get("precision")
                _note(self.trained, about["dataset"], key, training["seconds"] / images)
            if result["conditions"]["device"] == device:
                hard = about["train"].get("adversarial") is not None
                for attack in result["attacks"]:
                    victim: tuple[object, ...] = model, hard
                    if attack["transfer"]:
                        victim = "transfer", result["cell"]["substitute"]["model"]
                    _note(self.attacked, about["dataset"], (*victim, attack["attack"]), attack["seconds"] / result["n"])
                self.analysed.setdefault(_analyses_key(result["cell"]), []).append(result["seconds"]["analyses"])
                if "audit" in result:
                    seconds = result["seconds"]["audit"] / result["audit"]["clean"]["n"]
                    _note(self.attacked, about["dataset"], (model, hard, result["cell"]["audit"]["mode"]), seconds)

    def training(self, training: Training, epochs: int) -> tuple[float, bool]:
        """Seconds of so many epochs, and whether they were measured."""
        crafting = crafting_passes(training.config.as_dict().get("adversarial"))
        images = epochs * describe(training.dataset).counts["train"]
        found = _find(self.trained, training.dataset, (training.model, crafting, training.precision))
        if found:
            return images * found[0], found[1]
        return images * (1 + crafting) * self.seconds_of_a_pass(training), False

    def attack(self, cell: Cell, attack: NamedAttack, examples: int | None) -> tuple[float, bool]:
        """Seconds of an attack on a cell's images, and whether they were measured."""
        n, crafted_on, key = _images(cell, examples), cell.training, _attacked_key(cell, attack.text)
        if attack.transfer and cell.substitute is not None:
            crafted_on, key = cell.substitute, ("transfer", cell.substitute.model, attack.text)
        found = _find(self.attacked, cell.training.dataset, key)
        if found:
            return n * found[0], found[1]
        return n * passes(attack.attack) * self.seconds_of_a_pass(crafted_on), False

    def audit(self, cell: Cell) -> list[tuple[float, bool]]:
        """Seconds of the audit that a cell asks for; as long as standard AutoAttack where none is known."""
        if cell.audit is None:
            return []
        n = min(cell.audit.examples or _images(cell), _images(cell, cell.examples))
        found = _find(self.attacked, cell.training.dataset, _attacked_key(cell, cell.audit.mode))
        if found:
            return [(n * found[0], found[1])]
        standard = NamedAttack("standard", str(AutoAttack(cell.audit.eps)))
        return [(self.attack(cell, standard, n)[0], False)]

    def analyses(self, cell: Cell) -> list[tuple[float, bool]]:
        """Seconds of a cell's analyses, and whether they were measured."""
        found = self.analysed.get(_analyses_key(cell.as_dict()))
        if found:
            return [(mean(found), True)]
        limits = [(analysis, [n for n in (analysis.examples, cell.examples) if n]) for analysis in cell.analyses]
        return [
            self.attack(cell, attack, min(few, default=None)) for analysis, few in limits for attack in analysis.attacks
        ]


def crafting_passes(recipe: Mapping[str, Any] | None) -> int:
    """Passes for the adversarial example of an image in training, by the recipe as results have it."""
    return 0 if recipe is None else recipe.get("steps") or 1


def _attacked_key(cell: Cell, what: str) -> tuple[object, ...]:
    return cell.training.model, cell.training.config.adversarial is not None, what


def _note(times: _Times, dataset: str, key: tuple[object, ...], seconds: float) -> None:
    times.setdefault(key, {}).setdefault(dataset, []).append(seconds)


def _find(times: _Times, dataset: str, key: tuple[object, ...]) -> tuple[float, bool] | None:
    """The mean on this data set, or an estimate from the others; None where there is neither."""
    found = times.get(key, {})
    if dataset in found:
        return mean(found[dataset]), True
    size = math.prod(describe(dataset).shape)
    others = [mean(seconds) * size / math.prod(describe(other).shape) for other, seconds in found.items()]
    return (mean(others), False) if others else None


def _images(cell: Cell, examples: int | None = None) -> int:
    counts = describe(cell.training.dataset).counts
    held_out = round(cell.training.config.validation * counts["train"])
    return examples or (held_out if cell.split == "validation" else counts["test"])


def _analyses_key(content: dict[str, Any]) -> str:
    """What the time of a cell's analyses depends on."""
    training = content["training"]
    return json.dumps([training["dataset"], training["model"], content["analyses"], content.get("examples")])


def _training_costs(store: Store, training: Training, known: Known, counted: set[str]) -> list[tuple[float, bool]]:
    """Of the epochs that are left to do: a first phase that is shared may be done, or counted elsewhere."""
    epochs = sum(phase.epochs for phase in training.config.phases)
    first = warm_up_of(training)
    if first is not None and (first.hash in counted or store.is_trained(first)):
        epochs -= first.config.epochs
    if first is not None:
        counted.add(first.hash)
    return [known.training(training, epochs)]


@cache
def _timed(model: str, dataset: str, execution: Execution) -> float:
    """Seconds an image forward and backward: the fastest of a few batches, since what else runs only slows it down."""
    description = describe(dataset)
    channels, size, _ = description.shape
    with torch.random.fork_rng(devices=[]):
        network = create_model(model, description.num_classes, in_channels=channels, image_size=size)
        network = execution.place(network).train()
        n = 256 if execution.torch_device.type == "cuda" else 32
        x = torch.rand(n, *description.shape, device=execution.torch_device)
        y = torch.zeros(n, dtype=torch.int64, device=x.device)
        seconds = []
        for _ in range(5):
            started = time.perf_counter()
            with execution.arithmetic():
                loss = F.cross_entropy(network(x).float(), y)
            loss.backward()  # type: ignore[no-untyped-call]
            if x.is_cuda:
                torch.cuda.synchronize(x.device)
            seconds.append(time.perf_counter() - started)
    return min(seconds) / n
