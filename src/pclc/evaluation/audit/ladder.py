"""The attacks of an audit, from cheap to thorough; each sees what the earlier ones left standing."""

import math
from typing import Literal, NamedTuple

from pclc.attacks import (
    APGD,
    FAB,
    MD,
    PGD,
    SPSA,
    APGDTargeted,
    Attack,
    HardLabel,
    Noise,
    ProbabilityMargin,
    Square,
    Transfer,
)
from pclc.attacks.types import Model, Norm

Mode = Literal["quick", "standard", "full"]
MODES: tuple[Mode, ...] = ("quick", "standard", "full")

# Attacks on the loss that a model was trained with; PC-LC's inverse is the probability margin.
_ADAPTIVE = {"pc": "pc", "pc-lc": "pc-lc", "pc-lc-authors": "pc-lc", "gce": "gce", "cot": "gce"}
BLACK_BOX = (HardLabel, Noise, Square, Transfer, SPSA)  # they need no gradient
COSTLY = (HardLabel, SPSA)  # in mode "full" each costs more than Square in AutoAttack
_SMALL_GAP = 5.0  # of the two largest logits, at which cross-entropy has a gradient everywhere


class Threat(NamedTuple):
    """What is known about the model and the budget when attacks are chosen."""

    norm: Norm
    eps: float
    classes: int
    gap: float
    differentiable: bool
    loss: str | None = None
    twin: Model | None = None


def claim_attack(norm: Norm, eps: float) -> PGD:
    """What a default claim is made with: plain PGD-40 on cross-entropy, its last iterate, as tables have it."""
    return PGD(eps, eps / 10, 40, norm=norm, stop="never")


def softened(gap: float) -> str:
    """Cross-entropy on logits scaled such that half of the examples have a gap of at most 5.

    Example:
        >>> softened(2.0), softened(70.0)
        ('ce', 'ce*0.07')
    """
    return f"ce*{_SMALL_GAP / gap:.1g}" if math.isfinite(gap) and gap > _SMALL_GAP else "ce"


def ladder(mode: Mode, threat: Threat) -> tuple[Attack, ...]:
    """The attacks of one mode, without those of the modes before it.

    Example:
        >>> threat = Threat("Linf", 0.1, classes=10, gap=3.0, differentiable=True)
        >>> for attack in ladder("quick", threat):
        ...     print(attack)
        apgd(eps=0.1, steps=40, objective="margin")
        probability_margin(eps=0.1, steps=40, restarts=1, logit_scale=0.1)
        apgd(eps=0.1, steps=40)
        apgd_t(eps=0.1, steps=40, targets=3)
        square(eps=0.1, queries=200)
    """
    attacks = {"quick": _quick, "standard": _standard, "full": _full}[mode](threat)
    return tuple(attack for attack in attacks if threat.differentiable or isinstance(attack, BLACK_BOX))


def strongest(norm: Norm, eps: float, steps: int = 100, restarts: int = 1) -> APGD:
    """The gradient attack by which checks probe the audit's own strength."""
    return APGD(eps, steps, norm=norm, restarts=restarts, objective="margin")


def _quick(threat: Threat) -> list[Attack]:
    norm, eps = threat.norm, threat.eps
    inverse = ProbabilityMargin(eps, 40, norm=norm, restarts=1, logit_scale=0.1)
    attacks: list[Attack] = [
        strongest(norm, eps, 40),
        inverse,
        APGD(eps, 40, norm=norm, objective=softened(threat.gap)),
    ]
    if threat.loss in _ADAPTIVE:  # the inverse of its loss first
        attacks = [inverse, APGD(eps, 40, norm=norm, objective=_ADAPTIVE[threat.loss]), attacks[0], attacks[2]]
    if threat.classes >= 4:
        attacks.append(APGDTargeted(eps, 40, targets=3, norm=norm))
    return [*attacks, *transfers(threat), Square(eps, 200, norm=norm)]


def _standard(threat: Threat) -> list[Attack]:
    norm, eps = threat.norm, threat.eps
    attacks: list[Attack] = [
        strongest(norm, eps, restarts=2),
        ProbabilityMargin(eps, 100, norm=norm, logit_scale=0.1),
        ProbabilityMargin(eps, 100, norm=norm),
        MD(eps, 100, norm=norm),
    ]
    if threat.classes >= 3:
        attacks.append(APGD(eps, 100, norm=norm, objective="dlr"))
    if threat.classes >= 4:
        attacks.append(APGDTargeted(eps, 100, norm=norm))
    return [
        *attacks,
        Noise(eps, norm=norm),
        Square(eps, 1000, norm=norm),
        *([HardLabel(eps, 1000)] if norm == "Linf" else []),
        SPSA(eps, lr=eps / 5, delta=min(eps, 0.01), steps=20, samples=32, norm=norm, objective="margin"),
    ]


def _full(threat: Threat) -> list[Attack]:
    norm, eps = threat.norm, threat.eps
    return [
        APGD(eps, 100, norm=norm),  # the first of standard AutoAttack; its APGD-T is in the standard mode
        FAB(eps, 100, norm=norm),
        strongest(norm, eps, restarts=5),
        ProbabilityMargin(eps, 100, norm=norm, restarts=6, logit_scale=0.1),
        Square(eps, 5000, norm=norm, rescale=False),  # the last of standard AutoAttack
        *([HardLabel(eps)] if norm == "Linf" else []),
        SPSA(eps, lr=eps / 10, delta=min(eps, 0.01), norm=norm, objective="margin"),
    ]


def transfers(threat: Threat) -> list[Attack]:
    """From the twin, where there is one."""
    if threat.twin is None:
        return []
    attack = PGD(threat.eps, threat.eps / 10, 40, norm=threat.norm, objective="margin")
    return [Transfer(attack, threat.twin)]
