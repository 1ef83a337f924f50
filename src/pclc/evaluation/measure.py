"""Accuracy under attack: every example under every attack, in chunks that are saved, shared among processes."""

import math
import platform
import time
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pclc.attacks import Attack, AttackWarning, notices
from pclc.attacks.types import Model, Norm
from pclc.attacks.validate import check_ball, check_count
from pclc.evaluation.adversaries import Callee, Entry, Foreign, plan
from pclc.evaluation.budget import is_storable
from pclc.evaluation.device import device_name, device_of
from pclc.evaluation.document import drop_other_examples, save_evaluation, save_examples, tell_what_is_replaced
from pclc.evaluation.parts import Maker
from pclc.evaluation.progress import bar
from pclc.evaluation.result import Accuracy, Conditions, Evaluation, Outcome, Perturbations
from pclc.evaluation.sharing import gather
from pclc.evaluation.state import Part, State
from pclc.evaluation.traps import SetupWarning, check_data, look_again, look_at_accuracy, look_at_logits
from pclc.execution import Execution
from pclc.hashes import architecture_hash, model_hash, settings_hash, tensor_hash
from pclc.training.processes import processes
from pclc.version import __version__

_MOST_ROWS, _MOST_ROWS_ON_CPU = 10_000, 1_000  # a killed evaluation may lose one chunk, and a CPU is slow
_MOST_NUMBERS = 2**27  # in the images of a chunk: 512 MiB as float32


def evaluate(
    model: Model,
    x: Tensor,
    y: Tensor,
    attacks: Iterable[Attack | Foreign | Callee | str] = (),
    *,
    eps: float | Sequence[float] | None = None,
    norm: Norm | None = None,
    seed: int = 0,
    index: Tensor | None = None,
    eight_bit: bool = False,
    keep_examples: bool = False,
    out: Path | str | None = None,
    chunk: int | None = None,
    execution: Execution | None = None,
    progress: bool = False,
    model_name: str | None = None,
    data_name: str | None = None,
) -> Evaluation:
    """Measure the accuracy that is left under each attack and in the worst case.

    Whatever attack made an example, a forward pass in IEEE float32 decides it, near ties in float64. It only counts as
    fooled inside its box and ball. Examples are processed in chunks; with `out`, the result of each attack on each
    chunk is saved as soon as it is there, and the same call continues from it after a kill. Under `torchrun` the chunks
    are shared among the processes, and each returns the whole result.

    Args:
        model: images (N, ...) to logits (N, K). It runs in eval mode on the device it is on and comes back as it was.
        x: (N, ...) float32 or float64 in [0, 1].
        y: (N,) int64, the true classes.
        attacks: attacks of `pclc.attacks`, their texts, or callables (model, x, y) -> x_adv of other libraries;
            `pclc.evaluation.Foreign` gives such a callable a name and the budget it is held to.
        eps: one radius or several, to replace that of each attack that has one. They are tried from the smallest
            upwards: with stop="success" an example that a smaller eps has broken counts at the larger one too and is
            not attacked again; with stop="never" every eps stands for itself. Other settings, such as alpha, stay.
        norm: with `eps`, the norm to which bare callables are held; None: "Linf".
        seed: of all random numbers.
        index: (N,) int64, the images' places in their data set, to which random numbers belong; None: 0 ... N - 1.
        eight_bit: round adversarial examples to k/255 before they count: toward x and, where that undoes one, away
            from it, as far as the ball allows.
        keep_examples: keep the adversarial examples in the outcomes and, with `out`, in files.
        out: folder for `evaluation.json` and for what a killed evaluation needs to continue.
        chunk: examples per chunk; None: 10,000, on a CPU 1,000, fewer for large images.
        execution: precision of crafting, batch size, compilation, CUDA graphs; the device is the model's.
        progress: show a bar on the error stream.
        model_name: name of the model in the result; None: its class.
        data_name: name of the data in the result.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
        >>> x, y = torch.tensor([[0.75, 0.25], [0.5, 0.25], [0.0, 1.0]]), torch.tensor([0, 0, 1])
        >>> report = evaluate(model.eval(), x, y, ["fgsm(eps=0.2)"])
        >>> report.clean_accuracy.correct, report.robust_accuracy.correct, report.outcomes[0].robust.tolist()
        (3, 2, [True, False, True])
    """
    radii = _radii(eps, norm)
    index = check_data(x, y, seed, index)
    if eight_bit and not is_storable(x):
        raise ValueError("Expected `x` to hold multiples of 1/255 with eight_bit=True, but it holds other values.")
    if chunk is not None:
        check_count("chunk", chunk)
    device = device_of(model, x)
    maker = Maker(model, (execution or Execution()).for_attacks(device), seed, eight_bit, keep_examples)
    run = _Run(maker, x, y, index, plan(attacks, radii, norm), Path(out) if out else None, device)
    name = model_name or str(getattr(model, "__name__", type(model).__name__))
    return run.go(chunk, progress, name, data_name or "the given images")


@dataclass(eq=False)
class _Run:
    """One call of :func:`evaluate`."""

    maker: Maker
    x: Tensor
    y: Tensor
    index: Tensor
    entries: list[Entry]
    out: Path | None
    device: torch.device

    def __post_init__(self) -> None:
        self.model, self.execution = self.maker.model, self.maker.execution
        self.versions = {"pclc": __version__, "torch": torch.__version__, "python": platform.python_version()}
        self.model_hash, self.data_hash = model_hash(self.model), tensor_hash(self.x, self.y, self.index)
        self.state = State(self.out)
        # Before the first pass: a model may count them.
        self.about: dict[str, Any] = {
            "model": self.model_hash,
            "architecture": architecture_hash(self.model),
            "data": self.data_hash,
            "seed": self.maker.seed,
            "eight_bit": self.maker.eight_bit,
            "device": self.device.type,
            "precision": self.execution.resolved_precision,
            "versions": self.versions,
        }

    def go(self, chunk: int | None, progress: bool, model_name: str, data_name: str) -> Evaluation:
        started = time.perf_counter()
        found = self._look()
        with processes(self.device) as peers:
            if peers.leads:
                found += self.state.announce(self.about)
            chunks = self._chunks(chunk, peers.count)
            mine = range(peers.rank, len(chunks), peers.count)
            total = sum(chunks[i].stop - chunks[i].start for i in mine) * (1 + len(self.entries))
            with bar(total, progress and peers.leads) as self.advance:
                done = {i: self._chunk(chunks[i]) for i in mine}
            parts = {i: found for share in gather(done, peers.count) for i, found in share.items()}
            columns = [[parts[i][column] for i in range(len(chunks))] for column in range(1 + len(self.entries))]
            clean = ~torch.cat([part.fooled for part in columns[0]])
            near = look_at_accuracy(Accuracy.of(clean), self.classes)
            found += [near] if near else []
            conditions = Conditions(
                model_name,
                self.model_hash,
                data_name,
                self.data_hash,
                self.maker.eight_bit,
                device_name(self.device),
                self.execution.resolved_precision,
                peers.count,
                settings_hash([self.about, [[entry.text, entry.identity] for entry in self.entries]]),
                self.versions,
            )
            outcomes = tuple(
                self._outcome(entry, column, clean) for entry, column in zip(self.entries, columns[1:], strict=True)
            )
            seconds = time.perf_counter() - started
            result = Evaluation(clean, self.index.cpu(), outcomes, conditions, tuple(found), seconds)
            if self.out and peers.leads:
                tell_what_is_replaced(result, self.out)
                drop_other_examples(result, self.out)
                save_evaluation(result, self.out)
                if self.maker.keep:
                    save_examples(result, self.y, self.out)
            for text in found if peers.leads else ():
                warnings.warn(text, SetupWarning, stacklevel=3)
        return result

    def _look(self) -> list[str]:
        some = min(len(self.x), self.execution.resolved_batch_size)
        first = self.x[:some].to(self.device)
        self.classes, found = look_at_logits(self.model, first, self.y)
        found += look_again(self.model, first, self.y[:some].to(self.device), self.execution)
        if self.out and self.model_hash is None:
            what = "frozen" if isinstance(self.model, nn.Module) else "a plain function"
            found.append(f"The model is {what} and has no hash, so a killed evaluation of it starts over.")
        if self.out:
            found += [
                f"{entry.text} has no name for its settings, so it is computed again each time: use Foreign."
                if isinstance(entry.attack, Foreign)
                else f"{entry.text} has code that may change under the same name, so it is computed again each time."
                for entry in self.entries
                if entry.identity is None
            ]
        return found

    def _chunks(self, size: int | None, count: int) -> list[slice]:
        """Equal chunks, at least one for each process where there are enough examples."""
        n = len(self.x)
        if size is None:
            numbers = math.prod(self.x.shape[1:])
            most = _MOST_ROWS_ON_CPU if self.device.type == "cpu" else _MOST_ROWS
            size = max(1, min(most, _MOST_NUMBERS // numbers))
        pieces = min(n, max(math.ceil(n / size), count))
        edges = [n * i // pieces for i in range(pieces + 1)]
        return [slice(a, b) for a, b in pairwise(edges)]

    def _chunk(self, rows: slice) -> list[Part]:
        """The clean images and every attack on one chunk."""
        x, y, index = (tensor[rows].to(self.device) for tensor in (self.x, self.y, self.index))
        about = {**self.about, "data": tensor_hash(x, y, index)}
        parts: list[Part] = []
        identities: list[dict[str, Any] | None] = []
        for entry in [None, *self.entries]:
            identity = self._identity(entry, about, identities)
            identities.append(identity)
            keep = self.maker.keep and entry is not None
            part = self.state.load(identity, keep)
            if part is None:
                part = self.maker.attack(entry, x, y, index, parts) if entry else self.maker.clean(x, y)
                self.state.save(identity, part)
            parts.append(part)
            for name, text in part.warnings:
                warnings.warn(text, getattr(notices, name, AttackWarning), stacklevel=4)
            self.advance(entry.text if entry else "clean", len(x))
        return parts

    def _identity(
        self, entry: Entry | None, about: dict[str, Any], before: list[dict[str, Any] | None]
    ) -> dict[str, Any] | None:
        """All that decides a part, with the parts it builds on; None where that cannot be told."""
        if self.model_hash is None:
            return None
        if entry is None:
            return {**about, "attack": None}
        smaller = before[1 + entry.smaller] if entry.smaller is not None else None
        own = entry.identity
        return None if own is None else {**about, "attack": own, "smaller": smaller}

    def _outcome(self, entry: Entry, parts: list[Part], clean: Tensor) -> Outcome:
        fooled, linf, l2 = (torch.cat([getattr(part, name) for part in parts]) for name in ("fooled", "linf", "l2"))
        turned = fooled & clean
        return Outcome(
            attack=entry.text,
            norm=entry.norm,
            eps=entry.eps,
            stop=entry.stop,
            seed=self.maker.seed,
            robust=~fooled,
            perturbations=Perturbations.of(linf[turned], l2[turned]),
            forwards=_sum([part.forwards for part in parts]),
            backwards=_sum([part.backwards for part in parts]),
            seconds=sum(part.seconds for part in parts),
            outside=sum(part.outside for part in parts),
            carried=sum(part.carried for part in parts),
            zero_gradient_share=_mean_share(parts),
            substitute=entry.substitute,
            linf=linf,
            l2=l2,
            x_adv=torch.cat([part.x_adv for part in parts if part.x_adv is not None]) if self.maker.keep else None,
        )


def _radii(eps: float | Sequence[float] | None, norm: Norm | None) -> list[float] | None:
    if eps is None:
        if norm is not None:
            raise ValueError(f"Expected `norm` to be given with `eps`, but got {norm!r} alone.")
        return None
    radii = [eps] if isinstance(eps, int | float) else list(eps)
    if not radii:
        raise ValueError("Expected `eps` to be a number or several, but got none.")
    for radius in radii:
        check_ball(radius, norm or "L2")  # each attack refuses what its own norm does not allow
    return radii


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


def _mean_share(parts: list[Part]) -> float | None:
    """Shares of zero gradients, weighted by the passes that asked for gradients."""
    weighted = [
        (part.zero_gradient_share, part.backwards or part.forwards or 1)
        for part in parts
        if part.zero_gradient_share is not None
    ]
    total = sum(weight for _, weight in weighted)
    return sum(share * weight for share, weight in weighted) / total if total else None
