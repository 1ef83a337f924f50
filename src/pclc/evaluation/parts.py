"""One attack on one chunk of examples: who counts as fooled, and what it cost."""

import time
import warnings
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pclc.attacks import AttackWarning
from pclc.attacks.decide import is_fooled
from pclc.attacks.types import Model
from pclc.evaluation.adversaries import Entry
from pclc.evaluation.budget import as_bytes, away_from_image, by_row, distances, is_inside, toward_image
from pclc.evaluation.state import Part
from pclc.execution import Execution


@dataclass(frozen=True, eq=False)
class Maker:
    """Makes the parts of an evaluation.

    Attributes:
        model: it decides.
        execution: how it runs.
        seed: of the attacks.
        eight_bit: round adversarial examples to k/255 before they count.
        keep: the examples themselves, too.
    """

    model: Model
    execution: Execution
    seed: int
    eight_bit: bool
    keep: bool

    def clean(self, x: Tensor, y: Tensor) -> Part:
        """The images as they are."""
        started = time.perf_counter()
        fooled = is_fooled(self.model, x, y, execution=self.execution).cpu()
        zeros = torch.zeros(len(x), dtype=torch.float64)
        return Part(fooled, zeros, zeros.clone(), None, len(x), 0, time.perf_counter() - started, 0, 0, None)

    def attack(self, entry: Entry, x: Tensor, y: Tensor, index: Tensor, parts: list[Part]) -> Part:
        """An attack and its warnings, which are repeated where the part is read and not computed again."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            part = self._made(entry, x, y, index, parts)
        ours = []
        for told in caught:
            if issubclass(told.category, AttackWarning):
                ours.append((told.category.__name__, str(told.message)))
            else:
                warnings.warn_explicit(told.message, told.category, told.filename, told.lineno)
        return replace(part, warnings=tuple(ours))

    def _made(self, entry: Entry, x: Tensor, y: Tensor, index: Tensor, parts: list[Part]) -> Part:
        """One attack on those examples that it is about: all, or those still right where it stops at success."""
        started = time.perf_counter()
        wrong, x_adv, carried = parts[0].fooled, x.clone(), 0
        fooled = torch.zeros_like(wrong) if entry.stop == "never" else wrong.clone()
        if entry.smaller is not None:
            smaller = parts[1 + entry.smaller]
            carried = int((smaller.fooled & ~wrong).sum())
            fooled |= smaller.fooled
            if self.keep:
                x_adv[smaller.fooled.to(x.device)] = smaller.as_images().to(x)[smaller.fooled.to(x.device)]
        todo = (~fooled).nonzero().squeeze(1).to(x.device)
        forwards: int | None = 0
        backwards: int | None = 0
        share, outside = None, 0
        if len(todo):
            found = entry.run(self.model, x[todo], y[todo], self.seed, index[todo], self.execution)
            candidates, success = found.x_adv, found.success
            forwards, backwards, share = found.forwards, found.backwards, found.zero_gradient_share
            inside = is_inside(candidates, x[todo], entry.norm, entry.eps)
            outside = int((~inside).sum())
            if success is None or self.eight_bit:
                candidates, success, passes = self._decide(entry, candidates, x[todo], y[todo], inside)
                forwards = None if forwards is None else forwards + passes
            fooled[todo.cpu()] = (success & inside).cpu()
            # What left the budget is no example of it: nothing of it is kept.
            x_adv[todo] = by_row(inside, candidates, x[todo])
        linf, l2 = (distance.cpu() for distance in distances(x_adv, x))
        if entry.smaller is not None and not self.keep:
            linf[smaller.fooled], l2[smaller.fooled] = smaller.linf[smaller.fooled], smaller.l2[smaller.fooled]
        kept = (as_bytes(x_adv) if self.eight_bit else x_adv).cpu() if self.keep else None
        seconds = time.perf_counter() - started
        return Part(fooled, linf, l2, kept, forwards, backwards, seconds, outside, carried, share)

    def _decide(self, entry: Entry, found: Tensor, x: Tensor, y: Tensor, inside: Tensor) -> tuple[Tensor, Tensor, int]:
        """What counts of candidates, who is fooled, and the passes that took; with `eight_bit` they are rounded.

        An attack that stops just beyond the boundary is undone by rounding toward x; rounding away is tried there.
        """
        ways = [found]
        if self.eight_bit:
            ways = [toward_image(found, x), away_from_image(found, x, entry.norm, entry.eps)]
        x_adv, fooled, passes = ways[0].clone(), torch.zeros_like(inside), 0
        for shown in ways:
            rows = (inside & ~fooled).nonzero().squeeze(1)
            if len(rows):
                hit = is_fooled(self.model, shown[rows], y[rows], execution=self.execution)
                x_adv[rows[hit]], fooled[rows] = shown[rows[hit]], hit
                passes += len(rows)
        return x_adv, fooled, passes
