"""Training: the paper's protocol, run directories, several processes."""

from pclc.training.config import LOSSES, TrainConfig
from pclc.training.loop import TrainingError, TrainResult, accuracy, train
from pclc.training.presets import PRESETS, paper_config
from pclc.training.run_directory import RunDirectory

__all__ = [
    "LOSSES",
    "PRESETS",
    "RunDirectory",
    "TrainConfig",
    "TrainResult",
    "TrainingError",
    "accuracy",
    "paper_config",
    "train",
]
