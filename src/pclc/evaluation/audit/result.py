"""What an audit gives: a verdict, the figures behind it, the checks, and the witnesses."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pclc.attacks.types import Norm
from pclc.evaluation.audit.finding import Finding
from pclc.evaluation.audit.ladder import Mode
from pclc.evaluation.audit.shares import Share
from pclc.evaluation.audit.standing import Step
from pclc.evaluation.audit.verdict import Overstatement, Verdict
from pclc.evaluation.witnesses import Witnesses


@dataclass(frozen=True)
class Gradient:
    """Of one objective: the share of gradients that vanish along the path of PGD, and whether it is small enough."""

    objective: str
    vanished: float
    usable: bool


@dataclass(frozen=True)
class Conditions:
    """What the verdict holds for.

    Attributes:
        norm, eps: the threat model.
        mode: "quick", "standard" or "full"; `escalated` says that the next one was used too.
        given: examples that were given; `n` of the figures is less where the first look decided.
        seed: of all random numbers.
        random: the model is random, so the figures are expected accuracies over fresh draws.
        model, data: names, `model_hash` and `data_hash` those of the contents.
        loss: name of the loss whose inverse was attacked; None where none was known.
        twin: hash of the model that transfers came from; None where there were none.
        device, precision: of crafting; what is fooled is decided in IEEE float32 and float64 in any case.
        processes, versions: over how many and with what.
    """

    norm: Norm
    eps: float
    mode: Mode
    escalated: bool
    given: int
    seed: int
    random: bool
    model: str
    model_hash: str | None
    data: str
    data_hash: str
    loss: str | None
    twin: str | None
    device: str
    precision: str
    processes: int
    versions: dict[str, str]


@dataclass(frozen=True, eq=False)
class Audit:
    """The judgement of a claim.

    Attributes:
        verdict: "refuted", "not refuted" or "cannot judge".
        reason: why, in words.
        claimed: what plain PGD-40 on cross-entropy leaves, with its interval; a number where the claim was stated.
        clean: accuracy without an attack.
        robust_accuracy: accuracy in the worst case over all attacks, with its interval; an upper bound on what is left.
            Once a claim is refuted, the audit looks for no more.
        overstatement: how much of the claim is missing, with its bound.
        gradients: which objectives have usable gradients.
        checks: what each check found. They are evidence about the attacks; none of them refutes a claim.
        witnesses: the adversarial examples that refute, ready to be saved.
        steps: the attacks, in their order.
        conditions: what all of it holds for.
        seconds: in total.
    """

    verdict: Verdict
    reason: str
    claimed: Share | float
    clean: Share
    robust_accuracy: Share
    overstatement: Overstatement
    gradients: tuple[Gradient, ...]
    checks: tuple[Finding, ...]
    witnesses: Witnesses = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    conditions: Conditions
    seconds: float

    @property
    def stated(self) -> bool:
        """Whether the claim was stated, and not measured here."""
        return isinstance(self.claimed, float)

    @property
    def fired(self) -> tuple[Finding, ...]:
        """The checks that fired."""
        return tuple(finding for finding in self.checks if finding.fired)

    def rows(self) -> list[dict[str, Any]]:
        """The checks as a table."""
        return [
            {
                "check": f.name,
                "state": f.state,
                "measured": f.measured,
                "fires when": f.threshold,
                "evidence of": f.kind,
            }
            for f in self.checks
        ]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        """The verdict and its figures, for people."""
        about = self.conditions
        yield f"{self.verdict.upper()}. {self.reason}"
        claimed = f"{100 * self.claimed:.1f} % (stated)" if isinstance(self.claimed, float) else str(self.claimed)
        yield f"claimed: {claimed}; worst case: {self.robust_accuracy}; clean: {self.clean}"
        yield f"overstatement: {self.overstatement}"
        stopped = f" of {about.given} given" if self.clean.n < about.given else ""
        yield (
            f"{about.model} on {self.clean.n}{stopped} examples of {about.data}, {about.norm} eps {about.eps:.6g}, "
            f"mode {about.mode}{' and the next one' if about.escalated else ''}, seed {about.seed}"
            f"{', expected accuracies of a random model' if about.random else ''}; {len(self.witnesses)} witnesses; "
            f"{self.seconds:.1f} s"
        )
        sampled = [f"{step.attack} on {step.tried} of {step.tried + step.spared}" for step in self.steps if step.spared]
        if sampled:
            yield f"tried only on a random sample of survivors, few of which fell: {', '.join(sampled)}"
        usable = [g.objective for g in self.gradients if g.usable]
        lost = [f"{g.objective} ({100 * g.vanished:.0f} % vanish)" for g in self.gradients if not g.usable]
        if self.gradients:  # none were looked at where the clean accuracy is near chance
            unusable = f"; not usable: {', '.join(lost)}" if lost else ""
            yield f"usable gradients: {', '.join(usable) or 'none'}{unusable}"
        for finding in self.fired:
            yield f"{finding.name}: {finding.measured}. Next: {finding.next_step}."
