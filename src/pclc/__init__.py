"""pclc: train classifiers with the PC-LC loss, attack them, and tell the truth about the robustness that is left."""

__version__ = "0.1.0"

from pclc import attacks, functional
from pclc.data import Dataset, load_dataset
from pclc.execution import Execution
from pclc.losses import ComplementEntropy, GuidedComplementEntropy, PCLoss
from pclc.models import create_model, load_model, save_model
from pclc.training import AdversarialConfig, RunDirectory, TrainConfig, TrainingError, train

__all__ = [
    "AdversarialConfig",
    "ComplementEntropy",
    "Dataset",
    "Execution",
    "GuidedComplementEntropy",
    "PCLoss",
    "RunDirectory",
    "TrainConfig",
    "TrainingError",
    "attacks",
    "create_model",
    "functional",
    "load_dataset",
    "load_model",
    "save_model",
    "train",
]
