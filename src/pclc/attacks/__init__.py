"""Attacks: one loop for the iterative family, one file for each of the others, objectives by name."""

from pclc.attacks.apgd import APGD
from pclc.attacks.apgd_targeted import APGDTargeted
from pclc.attacks.attack import Attack, AttackResult
from pclc.attacks.autoattack import AutoAttack, AutoAttackResult
from pclc.attacks.bim import BIM
from pclc.attacks.bpda import BPDA, replace_module
from pclc.attacks.carlini_wagner import CarliniWagner
from pclc.attacks.ddn import DDN
from pclc.attacks.eot import EOT
from pclc.attacks.fab import FAB
from pclc.attacks.fgsm import FGSM
from pclc.attacks.hard_label import HardLabel
from pclc.attacks.md import MD
from pclc.attacks.mim import MIM
from pclc.attacks.noise import Noise
from pclc.attacks.notices import (
    AttackWarning,
    DynamicModelWarning,
    ProbabilityWarning,
    RandomModelWarning,
    SquareStrongerWarning,
    TrainModeWarning,
    UnreachableWarning,
    ZeroGradientWarning,
)
from pclc.attacks.objectives import get_objective, objective_names, register_objective
from pclc.attacks.pgd import PGD
from pclc.attacks.probability_margin import ProbabilityMargin
from pclc.attacks.registry import attack_names, register_attack
from pclc.attacks.spsa import SPSA
from pclc.attacks.square import Square
from pclc.attacks.text import parse_attack
from pclc.attacks.transfer import Transfer

__all__ = [
    "APGD",
    "BIM",
    "BPDA",
    "DDN",
    "EOT",
    "FAB",
    "FGSM",
    "MD",
    "MIM",
    "PGD",
    "SPSA",
    "APGDTargeted",
    "Attack",
    "AttackResult",
    "AttackWarning",
    "AutoAttack",
    "AutoAttackResult",
    "CarliniWagner",
    "DynamicModelWarning",
    "HardLabel",
    "Noise",
    "ProbabilityMargin",
    "ProbabilityWarning",
    "RandomModelWarning",
    "Square",
    "SquareStrongerWarning",
    "TrainModeWarning",
    "Transfer",
    "UnreachableWarning",
    "ZeroGradientWarning",
    "attack_names",
    "get_objective",
    "objective_names",
    "parse_attack",
    "register_attack",
    "register_objective",
    "replace_module",
]
