"""Which examples still stand, and the adversarial examples of those that do not."""

import time
import warnings
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pclc.attacks import Attack, AttackWarning, HardLabel, Noise, Square, Transfer
from pclc.attacks.decide import is_fooled
from pclc.attacks.spsa import SPSA
from pclc.attacks.types import Model, Norm
from pclc.evaluation.audit.subject import Unmoved
from pclc.evaluation.candidates import look_at
from pclc.execution import Execution

BLACK_BOX = (HardLabel, Noise, Square, Transfer, SPSA)


@dataclass(frozen=True)
class Step:
    """One attack of the audit: how many examples it was given, how many it broke, in how many seconds."""

    attack: str
    tried: int
    broke: int
    seconds: float
    black_box: bool


@dataclass(eq=False)
class Standing:
    """The examples under audit; attacks knock them over one after the other.

    Attributes:
        model: decides.
        x, y, index: the examples.
        norm, eps: the ball.
        clean: (N,) flags: right without an attack.
        broken: (N,) flags: wrong without an attack, or fooled by an example inside the ball and the box.
        x_adv: (N, ...) those examples.
        steps: what was tried.
    """

    model: Model
    x: Tensor
    y: Tensor
    index: Tensor
    norm: Norm
    eps: float
    seed: int
    execution: Execution
    clean: Tensor = field(init=False)
    broken: Tensor = field(init=False)
    x_adv: Tensor = field(init=False)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clean = ~is_fooled(self.model, self.x, self.y, execution=self.execution)
        self.broken, self.x_adv = torch.zeros_like(self.clean), self.x.clone()
        self.keep((~self.clean).nonzero().squeeze(1), self.x[~self.clean])

    def strike(self, attack: Attack, craft: Model, rows: Tensor) -> None:
        """Attack those of `rows` (places) that still stand, through `craft`, and keep what fools the model."""
        started = time.perf_counter()
        todo = rows[~self.broken[rows]]
        if len(todo):
            x_adv = run_quietly(attack, craft, self.x[todo], self.y[todo], self.seed, self.index[todo], self.execution)
            broke = self.keep(todo, x_adv)
        else:
            broke = 0
        seconds = time.perf_counter() - started
        self.steps.append(Step(str(attack), len(todo), broke, seconds, isinstance(attack, BLACK_BOX)))

    def keep(self, rows: Tensor, x_adv: Tensor) -> int:
        """Keep candidates for `rows` that are inside and wrong in both precisions; returns how many are."""
        nominated = is_fooled(self.model, x_adv, self.y[rows], execution=self.execution) if len(rows) else rows > 0
        rows, x_adv = rows[nominated], x_adv[nominated]
        seen = look_at(self.model, x_adv, self.x[rows], self.y[rows], self.norm, self.eps, self.execution)
        hit = (seen.inside & seen.wrong).to(rows.device)
        self.x_adv[rows[hit]], self.broken[rows[hit]] = x_adv[hit].to(self.x_adv), True
        return int(hit.sum())


def run_quietly(
    attack: Attack, model: Model, x: Tensor, y: Tensor, seed: int, index: Tensor, execution: Execution
) -> Tensor:
    """The examples that an attack makes; its warnings are what the checks tell, so that nobody needs them twice."""
    craft = model if isinstance(attack, BLACK_BOX) else Unmoved(model)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AttackWarning)
        return attack(craft, x, y, seed, index, execution)


def right_after(attack: Attack, model: Model, x: Tensor, y: Tensor, seed: int, execution: Execution) -> Tensor:
    """(N,) flags: the model is right on what the attack returns."""
    index = torch.arange(len(x), device=x.device)
    return ~is_fooled(model, run_quietly(attack, model, x, y, seed, index, execution), y, execution=execution)
