"""Checks before the first epoch and after each one: can this run still succeed?"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pclc.attacks import ProbabilityWarning
from pclc.data.dataset import Dataset
from pclc.training.config import TrainConfig

# After so many epochs without movement a loss counts as collapsed. Adversarial training may stay at chance for a while.
_PATIENCE, _ADVERSARIAL_PATIENCE = 5, 10


class TrainingError(RuntimeError):
    """A run that cannot succeed."""


def check_model(model: object) -> None:
    """Refuse what has nothing to train."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"Expected `model` to be a torch.nn.Module, but got a {type(model).__name__}.")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ValueError("Expected `model` to have parameters that require gradients, but it has none.")


def check_takes_float32(model: nn.Module, error: RuntimeError) -> None:
    """Say why a model of another precision failed at float32 images."""
    others = {str(parameter.dtype) for parameter in model.parameters()} - {str(torch.float32)}
    if others:
        raise ValueError(
            f"Expected `model` to take float32 images, but its weights are {' and '.join(sorted(others))}, and it "
            f"failed: {error}. Convert it with model.float(); `precision` makes training faster."
        ) from error


def check_outputs(logits: object, some: Dataset, largest: int) -> list[Warning]:
    """Refuse outputs that the loss cannot take, and return warnings about odd ones.

    Too few outputs would end in an IndexError, on CUDA in a dead device.

    Args:
        logits: the model's output for a few images.
        some: those images.
        largest: the largest label in the whole data set.
    """
    classes = len(some.classes)
    if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[1] <= largest:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else f"a {type(logits).__name__}"
        raise ValueError(
            f"Expected `model` to give logits of shape (N, {classes}), one for each class of {some.name!r}, whose "
            f"labels go up to {largest}, but got {got} for {len(some)} images."
        )
    odd: list[Warning] = []
    if logits.shape[1] > classes:
        odd.append(
            UserWarning(
                f"`model` gives {logits.shape[1]} logits, but {some.name!r} has {classes} classes. The losses treat "
                "the others as false classes too."
            )
        )
    if (logits >= 0).all() and ((logits.sum(1) - 1).abs() < 1e-3).all():
        odd.append(
            ProbabilityWarning(
                "`model` seems to return probabilities: every row is non-negative and sums to 1. The losses apply "
                "softmax themselves, and through two of them a model learns little. Remove the model's softmax."
            )
        )
    return odd


def check_settings(config: TrainConfig, examples: int) -> list[Warning]:
    """Return warnings about what the run will not do as asked."""
    odd: list[Warning] = []
    if config.batch_size > examples:
        odd.append(UserWarning(f"Each batch holds all {examples} images, because `batch_size` is {config.batch_size}."))
    epochs, recipe = sum(phase.epochs for phase in config.phases), config.adversarial
    if recipe is not None and epochs <= recipe.ramp_epochs:
        reached = recipe.largest_eps * epochs / (recipe.ramp_epochs + 1)
        odd.append(
            UserWarning(
                f"The run ends before its ramp of {recipe.ramp_epochs} epochs does: eps only grows to {reached:.3g}, "
                f"not to {recipe.largest_eps:.3g}. Use a smaller `ramp_epochs` or more epochs."
            )
        )
    return odd


def check_progress(epochs: Sequence[dict[str, Any]], config: TrainConfig, classes: int, diverged: bool) -> None:
    """Stop a run that has diverged or is stuck at chance, and say what to try; `epochs` are those of the phase."""
    last = epochs[-1]
    if diverged:
        finite = math.isfinite(last["loss"])
        broken = "The logits are NaN or infinite after the last step" if finite else f"The loss is {last['loss']}"
        raise TrainingError(
            f"{broken} in epoch {last['epoch']}: training has diverged. Try a smaller learning rate (now "
            f"{last['lr']:g}) or precision fp32."
        )
    patience = _ADVERSARIAL_PATIENCE if config.adversarial else _PATIENCE
    recent = epochs[-patience:]
    spread = max(e["loss"] for e in recent) - min(e["loss"] for e in recent)
    at_chance = all(e["accuracy"] < 1.2 / classes for e in recent)
    if len(recent) == patience and at_chance and spread <= 3e-4 * abs(last["loss"]):
        raise TrainingError(
            f"The loss has stayed at {last['loss']:.4f} for {patience} epochs with an accuracy of "
            f"{last['accuracy']:.3f}, which is chance: training has collapsed. Try a smaller learning rate "
            f"(now {last['lr']:g}); for PC a longer warm-up (now {config.warm_up_epochs} epochs); in "
            "adversarial training a smaller eps or a ramp."
        )
