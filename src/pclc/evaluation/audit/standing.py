"""Which examples still stand, and the adversarial examples of those that do not."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from pclc.attacks import Attack, AttackWarning
from pclc.attacks.decide import is_fooled
from pclc.attacks.types import Model, Norm
from pclc.evaluation.audit.ladder import BLACK_BOX
from pclc.evaluation.audit.subject import Unmoved
from pclc.evaluation.candidates import look_at
from pclc.evaluation.sharing import gather
from pclc.evaluation.state import State
from pclc.execution import Execution
from pclc.hashes import tensor_hash
from pclc.training.processes import Processes


@dataclass(frozen=True)
class Step:
    """One attack of the audit.

    Attributes:
        attack: as text.
        tried, broke: examples that it was given, and that fell.
        seconds: that it took.
        black_box: it needs no gradient.
        spared: examples that stood too and that it was not given, because it broke little of a random sample.
    """

    attack: str
    tried: int
    broke: int
    seconds: float
    black_box: bool
    spared: int = 0


def merged(steps: Sequence[Step]) -> tuple[Step, ...]:
    """One line for each attack, with what it did at all looks."""
    merged: dict[str, Step] = {}
    for step in steps:
        old = merged.get(step.attack, Step(step.attack, 0, 0, 0.0, step.black_box))
        sums = (old.tried + step.tried, old.broke + step.broke, old.seconds + step.seconds)
        merged[step.attack] = Step(step.attack, *sums, step.black_box, old.spared + step.spared)
    return tuple(merged.values())


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
        spent_before: seconds of an earlier audit, which was killed, in what was kept of it.
        state: where outcomes are kept, for an audit that is killed.
        about: what all of them depend on; None where that has no name, and nothing is kept.
        peers: processes that share the examples; each knows all outcomes.
    """

    model: Model
    x: Tensor
    y: Tensor
    index: Tensor
    norm: Norm
    eps: float
    seed: int
    execution: Execution
    state: State = field(default_factory=lambda: State(None))
    about: dict[str, Any] | None = None
    peers: Processes = field(default_factory=Processes)
    clean: Tensor = field(init=False)
    broken: Tensor = field(init=False)
    x_adv: Tensor = field(init=False)
    steps: list[Step] = field(default_factory=list)
    spent_before: float = 0.0

    def __post_init__(self) -> None:
        self.broken, self.x_adv = torch.zeros_like(self.y, dtype=torch.bool), self.x.clone()
        wrong, _ = self.fooling(torch.arange(len(self.x), device=self.x.device), self.x)
        # One process may round otherwise than another; all go by the first.
        self.broken[gather(wrong.cpu(), self.peers.count)[0].to(self.x.device)] = True
        self.clean = ~self.broken

    def strike(self, attack: Attack, craft: Model, rows: Tensor) -> Step:
        """Attack those of `rows` (places) that still stand, through `craft`, and keep what fools the model."""
        started = time.perf_counter()
        todo = rows[~self.broken[rows]]
        mine = todo[self.peers.rank :: self.peers.count]
        hits, before = self._hits(attack, craft, mine)
        self.spent_before += before
        shares = gather(hits, self.peers.count)
        for share in shares:
            hit = share["rows"].to(self.x.device)
            self.x_adv[hit], self.broken[hit] = share["x_adv"].to(self.x_adv), True
        broke = sum(len(share["rows"]) for share in shares)
        seconds = time.perf_counter() - started + before
        self.steps.append(Step(str(attack), len(todo), broke, seconds, isinstance(attack, BLACK_BOX)))
        return self.steps[-1]

    def fooling(self, rows: Tensor, x_adv: Tensor) -> tuple[Tensor, Tensor]:
        """Those of `rows` whose candidates are inside and wrong in both precisions, and these candidates."""
        nominated = is_fooled(self.model, x_adv, self.y[rows], execution=self.execution) if len(rows) else rows > 0
        rows, x_adv = rows[nominated], x_adv[nominated]
        seen = look_at(self.model, x_adv, self.x[rows], self.y[rows], self.norm, self.eps, self.execution)
        hit = (seen.inside & seen.wrong).to(rows.device)
        return rows[hit], x_adv[hit].to(self.x_adv)

    def _hits(self, attack: Attack, craft: Model, rows: Tensor) -> tuple[dict[str, Tensor], float]:
        """Rows that fall and their examples, on the CPU, computed or kept; and the seconds that kept ones had taken."""
        identity = None
        if self.about is not None and len(rows):
            identity = {**self.about, "attack": str(attack), "rows": tensor_hash(rows)}
        kept = self.state.load_tensors(identity)
        if kept is not None:  # perhaps by older code, so that they are decided again
            tensors, numbers = kept
            hit, x_adv = self.fooling(tensors["rows"].to(rows.device), tensors["x_adv"].to(self.x))
            return {"rows": hit.cpu(), "x_adv": x_adv.cpu()}, float(numbers["seconds"])
        started = time.perf_counter()
        hit, x_adv = rows, self.x[rows]
        if len(rows):
            x_adv = run_quietly(attack, craft, x_adv, self.y[rows], self.seed, self.index[rows], self.execution)
            hit, x_adv = self.fooling(rows, x_adv)
        found = {"rows": hit.cpu(), "x_adv": x_adv.cpu().contiguous()}
        self.state.save_tensors(identity, found, {"seconds": time.perf_counter() - started})
        return found, 0.0


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
