"""What checks look at: the model, some examples that it gets right, and attacks on them, each run once."""

from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from pclc.attacks import PGD, Attack
from pclc.attacks.types import Model, Norm
from pclc.evaluation.audit.finding import CHECKS
from pclc.evaluation.audit.ladder import claim_attack
from pclc.evaluation.audit.standing import right_after
from pclc.evaluation.audit.subject import Subject, look_at_model
from pclc.evaluation.audit.trace import Trace, trace
from pclc.execution import Execution

_ALPHA = 0.05


@dataclass(eq=False)
class Scene:
    """One model under one threat, as checks see it.

    Attributes:
        subject: the model, looked at.
        x: (N, ...) examples that the model gets right.
        y: (N,) their classes.
        norm: "Linf" or "L2".
        eps: radius of the ball.
        seed: of the attacks.
        execution: how they run.
        twin: another model for the same task, trained with cross-entropy, where there is one.
        survivors: (M, ...) examples that all attacks of the audit left standing, with their classes; None before.
        gained_draws: what the last doubling of EOT's draws took from the expected accuracy; None where there is none.
        gained_blind: what black-box attacks broke after those with gradients, and of how many; None before.
    """

    subject: Subject
    x: Tensor
    y: Tensor
    norm: Norm
    eps: float
    seed: int = 0
    execution: Execution = field(default_factory=Execution)
    twin: Model | None = None
    survivors: tuple[Tensor, Tensor] | None = None
    gained_blind: tuple[int, int] | None = None
    gained_draws: float | None = None
    _after: dict[str, Tensor] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, model: Model, x: Tensor, y: Tensor, norm: Norm, eps: float) -> "Scene":
        """A scene outside of an audit, to run a single check."""
        execution = Execution().for_attacks(x.device)
        return cls(look_at_model(model, x, y, execution), x, y, norm, eps, execution=execution)

    @property
    def level(self) -> float:
        """The chance of error that a statistical check is allowed, with all checks together at 5 %."""
        return _ALPHA / len(CHECKS)

    @property
    def claimed_with(self) -> PGD:
        """The attack that a default claim is made with."""
        return claim_attack(self.norm, self.eps)

    @cached_property
    def trace(self) -> Trace:
        """The path of the claim's attack."""
        return trace(self.subject.craft, self.x, self.y, self.claimed_with, self.seed, self.execution)

    def right_after(self, attack: Attack) -> Tensor:
        """(N,) flags: right after this attack; each attack is run once."""
        name = str(attack)
        if name not in self._after:
            self._after[name] = right_after(attack, self.subject.craft, self.x, self.y, self.seed, self.execution)
        return self._after[name]

    @property
    def index(self) -> Tensor:
        """Places to which random numbers belong."""
        return torch.arange(len(self.x), device=self.x.device)
