"""What a grid will cost: from what finished cells took on a device, otherwise from passes and what one takes there."""

import json
import math
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from statistics import mean
from typing import Any

import torch
from torch.nn import functional as F

from pclc.attacks import Attack, AutoAttack, UnreachableWarning
from pclc.data.registry import describe
from pclc.execution import Execution
from pclc.experiments.experiment import Cell, Training
from pclc.experiments.groups import NamedAttack
from pclc.experiments.store import Store
from pclc.experiments.trained import warm_up_of
from pclc.models import create_model
from pclc.training import AdversarialConfig

# What multiplies the passes of an attack.
_FACTORS = ("steps", "restarts", "search_steps", "samples", "targets", "queries", "draws")

_TIMED_SECONDS = 1.0  # after which no other batch is timed

# By what is done, and by data set: how much that was, and of how many images.
_Times = dict[tuple[object, ...], dict[str, list[tuple[float, int]]]]


@dataclass(frozen=True)
class Cost:
    """Seconds on one device with nothing beside it, and whether all of them are known from finished cells.

    Example:
        >>> print(Cost(50.0), Cost(50.0) + Cost(3950.0, measured=False))
        50 s ~1.1 h
    """

    seconds: float = 0.0
    measured: bool = True

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(self.seconds + other.seconds, self.measured and other.measured)

    def __str__(self) -> str:
        return ("" if self.measured else "~") + duration(self.seconds)


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a grid before it runs.

    Attributes:
        cell: what is to be done.
        finished: whether the store has it.
        trained: whether the store has its model.
        training: what is left to do of it.
        rest: attacks, analyses and audit that are left to do.
    """

    cell: Cell
    finished: bool
    trained: bool
    training: Cost = Cost()
    rest: Cost = Cost()

    @property
    def cost(self) -> Cost:
        """Of all that is left to do."""
        return self.training + self.rest


def plan_grid(store: Store | None, cells: Sequence[Cell], known: "Known") -> list[PlannedCell]:
    """What is there, and what the rest will cost; what several cells share is counted with the first.

    Without a store nothing is there.
    """
    there = {cell.hash for cell in cells if store is not None and store.load(cell) is not None}
    needed = {each.hash: each for cell in cells if cell.hash not in there for each in cell.trainings}
    trained = {name for name, each in needed.items() if store is not None and store.is_trained(each)}
    counted: set[str] = set()
    attacked: set[tuple[object, ...]] = set()
    planned = []
    for cell in cells:
        finished, own = cell.hash in there, cell.training.hash in trained
        new = {_attack_key(cell, attack): attack for attack in cell.attacks}
        if finished or cell.hash in counted:
            attacked |= new.keys() if own else set()  # with the weights what attacks have found is kept
            planned.append(PlannedCell(cell, finished, own))
            continue
        counted.add(cell.hash)
        training = Cost()
        for each in cell.trainings:
            if each.hash not in counted | trained:
                training += known.training(each, _epochs_left(store, each, counted))
            counted.add(each.hash)
        attacks = [known.attack(cell, attack, cell.examples) for key, attack in new.items() if key not in attacked]
        attacked |= new.keys()
        rest = sum(attacks, known.analyses(cell) + known.audit(cell))
        planned.append(PlannedCell(cell, finished, own, training, rest))
    return planned


def _attack_key(cell: Cell, attack: NamedAttack) -> tuple[object, ...]:
    """What is computed once, however many cells ask for it."""
    substitute = cell.substitute.hash if cell.substitute and attack.transfer else None
    return cell.training.hash, cell.split, cell.examples, cell.precision, str(attack.attack), substitute


def duration(seconds: float) -> str:
    """In the unit that suits it."""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def known_here(store: Store, execution: Execution, threads: int = 1) -> "Known":
    """What is known of this machine's device; a network that was not run on it yet is timed for a moment."""
    device = execution.torch_device

    def timed(training: Training) -> float:
        own = replace(execution, precision=training.precision) if training.precision else execution
        return _timed(training.model, training.dataset, own, threads)

    return Known(store.results(), torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu", timed)


def known_of_most(store: Store) -> "Known | None":
    """What is known of the device with the most results; None without any."""
    results = list(store.results())
    devices = Counter(result["conditions"]["device"] for result in results)
    return Known(results, max(sorted(devices), key=lambda name: devices[name])) if devices else None


class Known:
    """What work takes on a kind of device, by what finished cells took.

    Measured is what was done there with the same network on the same data set. The rest is estimated: from the same on
    other data sets, by the number of pixels; what was not done at all with that network, from the passes that it took
    on other networks or devices, of an attack that was never run by those of its kind, each for as long as a pass of
    the network takes. Attacks on adversarially trained models are a matter of their own: most images of another model
    fall early, and are attacked no more.

    Args:
        results: of finished cells.
        device: its name, as results have it.
        timed: seconds of a pass, forward or backward, of an image, for networks that were not run on the device;
            None: by the number of values that a network's layers give, from the nearest that was run.
    """

    def __init__(
        self, results: Iterable[dict[str, Any]], device: str, timed: Callable[[Training], float] | None = None
    ) -> None:
        self.device = device
        self._timed = timed
        self._taken: _Times = {}  # seconds
        self._trained: _Times = {}  # of trainings, by passes
        self._setups: dict[str, list[float]] = {}  # seconds before the first epoch, by network
        self._shares: _Times = {}  # of the passes that an attack may make
        self._audits: dict[object, list[float]] = {}  # how much longer than AutoAttack, by mode
        self._analysed: dict[str, list[float]] = {}
        self._attacked: _Times = {}  # of attacks, by passes; trainings run in other precisions, and say nothing of them
        for result in results:
            # Results may be of another version, or have names that are known elsewhere.
            with suppress(KeyError, TypeError, ValueError):
                self._learn(result)

    def training(self, training: Training, epochs: int) -> Cost:
        """Of so many epochs."""
        images = epochs * describe(training.dataset).counts["train"]
        step = _passes_of_a_step(training.config.as_dict().get("adversarial"))
        setup = mean(self._setups.get(training.model, [0.0]))
        if found := _find(self._taken, training.dataset, (training.model, training.precision, step)):
            return Cost(setup + images * found[0], found[1])
        # Steps with more or fewer passes of their kind say more than attacks do, which run in another precision.
        by_pass = training.model, training.precision, training.config.adversarial is not None
        found = _find(self._trained, training.dataset, by_pass)
        return Cost(setup + images * step * (found[0] if found else self._a_pass(self._trained, training)), False)

    def attack(self, cell: Cell, attack: NamedAttack, examples: int | None) -> Cost:
        """Of an attack on a cell's images."""
        n, crafted_on, key = examples or cell.images, cell.training, _attacked_key(cell, attack.text)
        if attack.transfer and cell.substitute is not None:
            crafted_on, key = cell.substitute, ("transfer", cell.substitute.model, attack.text)
        found = _find(self._taken, cell.training.dataset, key)
        if found:
            return Cost(n * found[0], found[1])
        hard, share = crafted_on.config.adversarial is not None, 1.0
        for kind in (attack.text, _kind(attack.text)):
            if counted := _find(self._shares, cell.training.dataset, (kind, hard), by_size=False):
                share = counted[0]
                break
        return Cost(n * share * _most_passes(attack.text) * self._a_pass(self._attacked, crafted_on), False)

    def audit(self, cell: Cell) -> Cost:
        """Of the audit that a cell asks for; where none is known, as long as standard AutoAttack."""
        if cell.audit is None:
            return Cost()
        n = min(cell.audit.examples or cell.images, cell.examples or cell.images)
        found = _find(self._taken, cell.training.dataset, _attacked_key(cell, cell.audit.mode))
        if found:
            return Cost(n * found[0], found[1])
        standard = self.attack(cell, NamedAttack("standard", str(AutoAttack(cell.audit.eps))), n)
        return Cost(mean(self._audits.get(cell.audit.mode, [1.0])) * standard.seconds, False)

    def analyses(self, cell: Cell) -> Cost:
        """Of a cell's analyses."""
        if not cell.analyses:
            return Cost()
        if found := self._analysed.get(_analyses_key(cell.as_dict())):
            return Cost(mean(found))
        limits = [(analysis, [n for n in (analysis.examples, cell.examples) if n]) for analysis in cell.analyses]
        attacks = [(attack, min(few, default=None)) for analysis, few in limits for attack in analysis.attacks]
        return sum((self.attack(cell, attack, n) for attack, n in attacks), Cost(measured=False))

    def _learn(self, result: Mapping[str, Any]) -> None:
        for name in ("training", "substitute"):
            if result.get(name):
                self._learn_training(result["cell"][name], result[name])
        about, n = result["cell"]["training"], result["n"]
        dataset, model, hard = about["dataset"], about["model"], about["train"].get("adversarial") is not None
        here = result["conditions"]["device"] == self.device
        if here:
            _values(model, dataset)  # refuses names that are not known, before anything is noted under them
        longest = 0.0
        for attack in result["attacks"]:
            text = attack["attack"]
            count = attack.get("forwards", 0) + attack.get("backwards", 0)
            victim: tuple[object, ...] = model, hard
            if attack["transfer"]:
                victim = "transfer", result["cell"]["substitute"]["model"]
            elif count:
                for kind in (text, _kind(text)):
                    _note(self._shares, dataset, (kind, hard), count / _most_passes(text), n)
                if here:
                    _note(self._attacked, dataset, (model,), attack["seconds"], count)
            if _kind(text) is AutoAttack:
                longest = max(longest, attack["seconds"] / n)
            if here:
                _note(self._taken, dataset, (*victim, text), attack["seconds"], n)
        if here:
            self._analysed.setdefault(_analyses_key(result["cell"]), []).append(result["seconds"]["analyses"])
        if "audit" in result:
            mode, seconds, few = (
                result["cell"]["audit"]["mode"],
                result["seconds"]["audit"],
                result["audit"]["clean"]["n"],
            )
            if longest:
                self._audits.setdefault(mode, []).append(seconds / few / longest)
            if here:
                _note(self._taken, dataset, (model, hard, mode), seconds, few)

    def _learn_training(self, training: Mapping[str, Any], done: Mapping[str, Any]) -> None:
        if done["device"] != self.device:
            return
        dataset, model = training["dataset"], training["model"]
        images = done["epochs"] * describe(dataset).counts["train"]
        recipe = training["train"].get("adversarial")
        step, precision = _passes_of_a_step(recipe), training.get("precision")
        _values(model, dataset)  # as with attacks
        _note(self._taken, dataset, (model, precision, step), done["seconds"], images)
        _note(self._trained, dataset, (model, precision, recipe is not None), done["seconds"], images * step)
        self._setups.setdefault(model, []).append(done.get("setup_seconds", 0.0))

    def _a_pass(self, times: _Times, training: Training) -> float:
        """Seconds of a pass of an image, forward or backward, by those of the network that is nearest in size."""
        if self._timed is not None and all(model != training.model for model, *_ in times):
            return self._timed(training)
        work: dict[str, list[tuple[float, int, int]]] = {}  # by network: seconds, passes, values in each
        for (model, *_), by_dataset in (times or self._trained or self._attacked).items():
            for dataset, done in by_dataset.items():
                values = _values(str(model), dataset)
                work.setdefault(str(model), []).extend((seconds, passes, values) for seconds, passes in done)
        own = _values(training.model, training.dataset)
        nearest = work[min(work, key=lambda model: abs(math.log(work[model][0][2] / own)))]
        return own * sum(seconds for seconds, _, _ in nearest) / sum(passes * values for _, passes, values in nearest)


def _attacked_key(cell: Cell, what: str) -> tuple[object, ...]:
    return cell.training.model, cell.training.config.adversarial is not None, what


def _note(times: _Times, dataset: str, key: tuple[object, ...], amount: float, images: int) -> None:
    times.setdefault(key, {}).setdefault(dataset, []).append((amount, images))


def _find(times: _Times, dataset: str, key: tuple[object, ...], by_size: bool = True) -> tuple[float, bool] | None:
    """An image's on this data set, or an estimate from the others; None where there is neither."""
    found = {
        name: sum(amount for amount, _ in done) / sum(images for _, images in done)
        for name, done in times.get(key, {}).items()
    }
    if dataset in found:
        return found[dataset], True
    sizes = {name: math.prod(describe(name).shape) if by_size else 1 for name in (dataset, *found)}
    others = [amount * sizes[dataset] / sizes[name] for name, amount in found.items()]
    return (mean(others), False) if others else None


def _passes_of_a_step(recipe: Mapping[str, Any] | None) -> int:
    """Passes of an image in training, of which the gradients of weights count as one; and those of crafting."""
    if recipe is None:
        return 3
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachableWarning)
        config = AdversarialConfig.from_dict(dict(recipe)).resolved()
    assert config.steps is not None
    return 3 + 3 * config.clean + 2 * config.steps


@cache
def _most_passes(text: str) -> int:
    """Passes forward and backward of an image that an attack makes at the most.

    Example:
        >>> _most_passes("fgsm(eps=0.1)"), _most_passes("pgd(eps=0.1, alpha=0.01, steps=40, restarts=2)")
        (2, 160)
    """
    attack = NamedAttack("", text).attack
    parts = attack.components().values() if isinstance(attack, AutoAttack) else [attack]
    return 2 * sum(math.prod(int(getattr(part, name, 1) or 1) for name in _FACTORS) for part in parts)


@cache
def _kind(text: str) -> type[Attack]:
    return type(NamedAttack("", text).attack)


def _analyses_key(content: dict[str, Any]) -> str:
    """What the time of a cell's analyses depends on."""
    training = content["training"]
    return json.dumps([training["dataset"], training["model"], content["analyses"], content.get("examples")])


def _epochs_left(store: Store | None, training: Training, counted: set[str]) -> int:
    """A first phase that is shared may be done, or counted elsewhere."""
    epochs = sum(phase.epochs for phase in training.config.phases)
    first = warm_up_of(training)
    if first is not None:
        if first.hash in counted or (store is not None and store.is_trained(first)):
            epochs -= first.config.epochs
        counted.add(first.hash)
    return epochs


@cache
def _values(model: str, dataset: str) -> int:
    """How many values the layers with weights give for an image, by which networks that were not run are estimated."""
    description = describe(dataset)
    channels, size, _ = description.shape
    counts: list[int] = []
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        network = create_model(model, description.num_classes, in_channels=channels, image_size=size).eval()
        for layer in network.modules():
            if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear):
                layer.register_forward_hook(lambda _, __, out: counts.append(out.numel()))
        network(torch.zeros(1, *description.shape))
    return sum(counts)


@cache
def _timed(model: str, dataset: str, execution: Execution, threads: int) -> float:
    """Seconds of a pass of an image: of the fastest of a few batches, since what else runs only slows it down."""
    description = describe(dataset)
    channels, size, _ = description.shape
    before = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        network = create_model(model, description.num_classes, in_channels=channels, image_size=size)
        network = execution.place(network).train()
        n = 256 if execution.torch_device.type == "cuda" else 32
        x = torch.rand(n, *description.shape, device=execution.torch_device)
        y = torch.zeros(n, dtype=torch.int64, device=x.device)
        seconds: list[float] = []
        torch.set_num_threads(threads)
        try:
            while len(seconds) < 2 or (len(seconds) < 5 and sum(seconds) < _TIMED_SECONDS):  # the first is cold
                started = time.perf_counter()
                with execution.arithmetic():
                    loss = F.cross_entropy(network(x).float(), y)
                loss.backward()  # type: ignore[no-untyped-call]
                if x.is_cuda:
                    torch.cuda.synchronize(x.device)
                seconds.append(time.perf_counter() - started)
        finally:
            torch.set_num_threads(before)
    return min(seconds) / n / _passes_of_a_step(None)
