"""Training: the paper's protocol, adversarial training, run directories, several processes."""

from pclc.training.adversarial import ADVERSARIAL_PRESETS, METHODS, AdversarialConfig, adversarial_preset
from pclc.training.checks import TrainingError
from pclc.training.config import LOSSES, TrainConfig
from pclc.training.loop import TrainResult, accuracy, train
from pclc.training.presets import PRESETS, adversarial_config, paper_config
from pclc.training.robust_losses import mart_loss, mix_loss, pc_adversarial_loss, trades_loss
from pclc.training.run_directory import RunDirectory
from pclc.training.watch import CatastrophicOverfittingWarning

__all__ = [
    "ADVERSARIAL_PRESETS",
    "LOSSES",
    "METHODS",
    "PRESETS",
    "AdversarialConfig",
    "CatastrophicOverfittingWarning",
    "RunDirectory",
    "TrainConfig",
    "TrainResult",
    "TrainingError",
    "accuracy",
    "adversarial_config",
    "adversarial_preset",
    "mart_loss",
    "mix_loss",
    "paper_config",
    "pc_adversarial_loss",
    "trades_loss",
    "train",
]
