"""Evaluation: accuracy under attack with its uncertainty, and witnesses that anybody can check."""

from pclc.evaluation.adversaries import Foreign
from pclc.evaluation.comparison import Comparison, combine, compare
from pclc.evaluation.document import load_evaluation, save_evaluation
from pclc.evaluation.measure import evaluate
from pclc.evaluation.result import Accuracy, Conditions, Evaluation, Outcome, Perturbations
from pclc.evaluation.statistics import (
    Interval,
    SeedComparison,
    clopper_pearson,
    compare_over_seeds,
    lower_bound,
    paired_test,
    upper_bound,
)
from pclc.evaluation.traps import SetupWarning
from pclc.evaluation.verification import Check, Verification, verify
from pclc.evaluation.witnesses import DataSource, Witnesses, load_witnesses, make_witnesses, witnesses_of
from pclc.hashes import model_hash, tensor_hash

__all__ = [
    "Accuracy",
    "Check",
    "Comparison",
    "Conditions",
    "DataSource",
    "Evaluation",
    "Foreign",
    "Interval",
    "Outcome",
    "Perturbations",
    "SeedComparison",
    "SetupWarning",
    "Verification",
    "Witnesses",
    "clopper_pearson",
    "combine",
    "compare",
    "compare_over_seeds",
    "evaluate",
    "load_evaluation",
    "load_witnesses",
    "lower_bound",
    "make_witnesses",
    "model_hash",
    "paired_test",
    "save_evaluation",
    "tensor_hash",
    "upper_bound",
    "verify",
    "witnesses_of",
]
