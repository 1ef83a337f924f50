"""Attacks: one loop for the iterative family, one file for each of the others, objectives by name."""

from pclc.attacks.attack import Attack, AttackResult
from pclc.attacks.bim import BIM
from pclc.attacks.carlini_wagner import CarliniWagner
from pclc.attacks.fgsm import FGSM
from pclc.attacks.mim import MIM
from pclc.attacks.noise import Noise
from pclc.attacks.notices import AttackWarning, ProbabilityWarning, UnreachableWarning, ZeroGradientWarning
from pclc.attacks.objectives import get_objective, objective_names, register_objective
from pclc.attacks.pgd import PGD
from pclc.attacks.registry import attack_names, register_attack
from pclc.attacks.spsa import SPSA
from pclc.attacks.text import parse_attack
from pclc.attacks.transfer import Transfer

__all__ = [
    "BIM",
    "FGSM",
    "MIM",
    "PGD",
    "SPSA",
    "Attack",
    "AttackResult",
    "AttackWarning",
    "CarliniWagner",
    "Noise",
    "ProbabilityWarning",
    "Transfer",
    "UnreachableWarning",
    "ZeroGradientWarning",
    "attack_names",
    "get_objective",
    "objective_names",
    "parse_attack",
    "register_attack",
    "register_objective",
]
