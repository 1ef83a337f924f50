"""Mistakes in the set-up that spoil a figure without an error: told before anybody believes it."""

import torch
from torch import Tensor, nn

from pclc.attacks.frozen import frozen
from pclc.attacks.inputs import check_logits, explain_types, pixel_advice
from pclc.attacks.types import Model
from pclc.evaluation.result import Accuracy
from pclc.execution import ieee_fp32


class SetupWarning(UserWarning):
    """The model or the data do not look like what an evaluation expects."""


def check_pixels(x: Tensor) -> None:
    """Refuse pixels in 0 ... 255 and normalised ones, the commonest mistakes, with what to do about it."""
    if not isinstance(x, Tensor):
        raise TypeError(f"Expected `x` to be a tensor, but got a {type(x).__name__}.")
    if x.dtype == torch.uint8 or (x.is_floating_point() and x.numel() and float(x.max()) > 2):
        low, high = float(x.min()), float(x.max())
        advice = "use x.float() / 255" if x.dtype == torch.uint8 else pixel_advice(low, high)
        raise ValueError(
            f"Expected `x` to be float with values in [0, 1], but got {x.dtype} with values from {low:g} to {high:g}: "
            f"{advice}. A model that wants other pixels needs that scaling as its first layer."
        )


def look_at_logits(model: Model, x: Tensor, y: Tensor) -> tuple[int, list[str]]:
    """The number of classes, and what is odd about the model's mode and about its logits on a few examples x."""
    found = []
    if isinstance(model, nn.Module):
        training = sum(module.training for module in model.modules())
        if training:
            found.append(
                f"The model came in train mode ({training} of its modules); it was evaluated in eval mode and left as "
                "it was. Figures measured elsewhere in train mode will differ."
            )
    with torch.no_grad(), ieee_fp32(), frozen(model), explain_types(model, x):
        logits = model(x.clone())
    check_logits(logits, len(x), y)
    sums = logits.double().sum(1)
    if (logits >= 0).all() and ((sums - 1).abs() < 1e-3).all():
        found.append(
            "The model seems to return probabilities: every row is non-negative and sums to 1. Attacks need logits; "
            "take the softmax off."
        )
    elif (logits <= 0).all() and ((logits.double().exp().sum(1) - 1).abs() < 1e-3).all():
        found.append("The model returns log-probabilities; attacks take them as logits, which is sound.")
    return logits.shape[1], found


def look_at_accuracy(clean: Accuracy, classes: int) -> list[str]:
    """Say so where the clean accuracy is below twice chance, and less than a tenth of the way from there to 1."""
    chance = 1 / classes
    if clean.value >= min(2 * chance, chance + 0.1 * (1 - chance)):
        return []
    return [
        f"The clean accuracy, {clean}, is near chance ({100 * chance:.1f} % for {classes} classes): is the "
        "normalisation missing or applied twice, are the labels numbered as in training, are the weights loaded?"
    ]
