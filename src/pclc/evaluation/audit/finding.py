"""What a check is, and how checks are found: functions that a decorator lists here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from pclc.evaluation.audit.scene import Scene

State = Literal["fired", "silent", "not applicable"]
# What firing is evidence of. "doubt" is the strongest: the audit's own best attack is too weak here.
Kind = Literal["set-up", "gradients", "weak attack", "doubt"]


class Measured(NamedTuple):
    """What a check saw: whether it fires (None: it does not apply), in words, and as a number where it is one."""

    fires: bool | None
    text: str
    value: float | None = None


@dataclass(frozen=True)
class Check:
    """A check by name.

    Attributes:
        name: short.
        kind: what firing is evidence of. "doubt" changes a verdict, from "not refuted" to "cannot judge". Of the others
            only one does: where images mix, no figure holds for single images, and there is nothing to judge.
        question: what it looks at.
        threshold: when it fires.
        source: where the idea comes from.
        next_step: what to try where it fires.
        look: the function.
    """

    name: str
    kind: Kind
    question: str
    threshold: str
    source: str
    next_step: str
    look: Callable[["Scene"], Measured]


@dataclass(frozen=True)
class Finding:
    """What a check found on one model.

    Attributes:
        name, kind, threshold, source, next_step: of the check.
        state: "fired", "silent" or "not applicable".
        measured: what was seen, in words.
        value: the same as a number, where it is one.
    """

    name: str
    kind: Kind
    state: State
    measured: str
    value: float | None
    threshold: str
    source: str
    next_step: str

    @property
    def fired(self) -> bool:
        """Whether it fired."""
        return self.state == "fired"


CHECKS: dict[str, Check] = {}


def register(
    name: str, *, kind: Kind, question: str, threshold: str, source: str, next_step: str
) -> Callable[[Callable[["Scene"], Measured]], Callable[["Scene"], Measured]]:
    """Decorate a check, and every audit runs it."""
    if name in CHECKS:
        raise ValueError(f"Expected `name` to be new, but a check {name!r} is registered already.")

    def add(look: Callable[["Scene"], Measured]) -> Callable[["Scene"], Measured]:
        CHECKS[name] = Check(name, kind, question, threshold, source, next_step, look)
        return look

    return add


def run_check(check: Check, scene: "Scene") -> Finding:
    """Look, and write down what was seen."""
    seen = check.look(scene)
    state: State = "not applicable" if seen.fires is None else "fired" if seen.fires else "silent"
    about = (check.threshold, check.source, check.next_step)
    return Finding(check.name, check.kind, state, seen.text, seen.value, *about)


def check_table() -> str:
    """All checks as a Markdown table, for the documentation."""
    lines = ["| check | looks at | fires when | evidence of | then try | source |", "|" + " --- |" * 6]
    lines += [
        f"| {c.name} | {c.question} | {c.threshold} | {c.kind} | {c.next_step} | {c.source} |" for c in CHECKS.values()
    ]
    return "\n".join(lines) + "\n"
