"""pclc: train classifiers with the PC-LC loss, attack them, and tell the truth about the robustness that is left."""

from pclc import attacks, functional
from pclc.data import Dataset, load_dataset
from pclc.evaluation import Evaluation, evaluate
from pclc.evaluation.audit import Audit, audit
from pclc.execution import Execution
from pclc.losses import ComplementEntropy, GuidedComplementEntropy, PCLoss
from pclc.models import create_model, load_model, save_model
from pclc.training import AdversarialConfig, RunDirectory, TrainConfig, TrainingError, train
from pclc.version import __version__

__all__ = [
    "AdversarialConfig",
    "Audit",
    "ComplementEntropy",
    "Dataset",
    "Evaluation",
    "Execution",
    "GuidedComplementEntropy",
    "PCLoss",
    "RunDirectory",
    "TrainConfig",
    "TrainingError",
    "__version__",
    "attacks",
    "audit",
    "create_model",
    "evaluate",
    "functional",
    "load_dataset",
    "load_model",
    "save_model",
    "train",
]
