"""Mistakes in the set-up that spoil a figure without an error: told before anybody believes it."""

from typing import SupportsFloat

import torch
from torch import Tensor, nn

from pclc.attacks.frozen import frozen
from pclc.attacks.inputs import check_logits, explain_types, pixel_advice
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim
from pclc.execution import ieee_fp32

# Logits that other images of the batch change by more than this share of their size: beyond rounding, also that of bf16
# and of scales that int8 takes from a whole batch.
MIXED = 0.02
_COPIED = 4  # images that are shown among copies of themselves


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
    training = in_train_mode(model)
    if training:
        found.append(
            f"The model came in train mode ({training} of its modules); it was evaluated in eval mode and left as it "
            "was. Figures measured elsewhere in train mode will differ."
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


def in_train_mode(model: Model) -> int:
    """How many of its modules are; a plain function has none, and what came through `torch.jit.freeze` has no mode."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return sum(getattr(module, "training", False) for module in modules)


def mixing(victim: Victim, x: Tensor) -> float:
    """How much the other images of a batch change the logits of an image, as a share of their size.

    Some images are shown among the others, and in all places of a batch of copies of themselves. Both batches have the
    same size, in which the same kernels round.

    Example:
        >>> from pclc.execution import Execution
        >>> execution = Execution().for_attacks(torch.device("cpu"))
        >>> mixing(Victim(lambda x: x, execution), torch.eye(3)) > MIXED
        False
        >>> mixing(Victim(lambda x: x - x.mean(0), execution), torch.eye(3)) > MIXED
        True
    """

    def shown(x: Tensor) -> Tensor:
        logits = victim.exact_logits(x).double()
        finite = torch.nan_to_num(logits, posinf=0.0, neginf=0.0)  # as of classes that are masked
        return finite - finite.mean(1, keepdim=True)  # what all logits have in common decides nothing

    logits = shown(x)
    changes = [shown(one.expand_as(x)) - here for one, here in zip(x[:_COPIED], logits[:_COPIED], strict=True)]
    lengths = torch.linalg.vector_norm(torch.cat(changes), dim=1)
    usual = torch.linalg.vector_norm(logits, dim=1).square().mean().sqrt()
    return float(lengths.max() / usual.clamp(min=torch.finfo(usual.dtype).tiny))


def look_at_accuracy(clean: SupportsFloat, classes: int) -> list[str]:
    """Say so where the clean accuracy is below twice chance, and less than a tenth of the way from there to 1."""
    chance = 1 / classes
    if float(clean) >= min(2 * chance, chance + 0.1 * (1 - chance)):
        return []
    return [
        f"The clean accuracy, {clean}, is near chance ({100 * chance:.1f} % for {classes} classes): is the "
        "normalisation missing or applied twice, are the labels numbered as in training, are the weights loaded?"
    ]
