"""Mistakes in the set-up that spoil a figure without an error, reported before anybody believes it."""

import copy
from typing import SupportsFloat

import torch
from torch import Tensor, nn

from pclc.attacks.balls import random_point
from pclc.attacks.frozen import frozen
from pclc.attacks.inputs import are_probabilities, check_examples, check_logits, check_randomness, explain_types
from pclc.attacks.suspicions import is_random
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim, is_success
from pclc.execution import Execution, ieee_fp32

# Logits that other images of the batch change by more than this share of their size: beyond rounding, also that of bf16
# and of scales that int8 takes from a whole batch.
MIXED = 0.02
# Images that float64 classifies differently than a plain pass in float32; rounding alone makes far fewer ties.
_TIED = 0.005
_LOOKED_AT = 8  # images, over and over, to see whether the model is random or mixes them
_COPIED = 4  # images that are shown among copies of themselves
_NEARBY = 0.05  # in a pixel, at most, of images that a model may know again


class SetupWarning(UserWarning):
    """The model or the data do not look like what an evaluation expects."""


def check_data(x: Tensor, y: Tensor, seed: int, index: Tensor | None) -> Tensor:
    """The places of the images, 0 ... N - 1 where none are given; mistakes in the data are refused."""
    check_examples(x, y)
    index = check_randomness(seed, index, x)
    if not len(x):
        raise ValueError("Expected at least one example, but got none.")
    if len(set(index.tolist())) < len(index):
        raise ValueError("Expected the numbers in `index` to be distinct, but some occur more than once.")
    return index


def look_at_logits(model: Model, x: Tensor, y: Tensor) -> tuple[int, list[str]]:
    """The number of classes, and what is odd about the model's mode and about its logits on a few examples x."""
    found = []
    training = in_train_mode(model)
    if training:
        found.append(
            f"The model was given in train mode ({training} of its modules). It was evaluated in eval mode and left as "
            "it was; figures measured in train mode will differ."
        )
    with torch.no_grad(), ieee_fp32(), frozen(model), explain_types(model, x):
        logits = model(x.clone())
    check_logits(logits, len(x), y)
    if are_probabilities(logits):
        found.append(
            "The model seems to return probabilities: every row is non-negative and sums to 1. Attacks need logits: "
            "remove the softmax."
        )
    return logits.shape[1], found


def look_again(model: Model, x: Tensor, y: Tensor, execution: Execution) -> list[str]:
    """What more than one pass over the same images tells."""
    with torch.inference_mode(False), torch.no_grad(), frozen(model), Victim(model, execution) as victim:
        x, y = x.clone(), y.clone()
        few = x[:_LOOKED_AT]
        if is_random(victim, few):
            return [
                "The model seems to be random: passes over the same images differ. Each figure describes one draw, and "
                "the worst case over several attacks is too low, because an image has to be lucky in all of them. "
                "`pclc.audit` reports expected accuracies."
            ]
        mixed = mixing(victim, few)
        plainly_wrong = is_success(victim.exact_logits(x), y, targeted=False)
        otherwise = float((victim.is_fooled(x, y) != plainly_wrong).double().mean())
    found = []
    if mixed > MIXED:
        found.append(
            f"The model mixes the images of a batch: others changed the logits of an image by up to {100 * mixed:.0f} "
            "% of their size, as happens in BatchNorm without running statistics. The figures hold for these batches, "
            "not for single images."
        )
    if otherwise > _TIED:
        found.append(
            "Float32 cannot tell the largest logits of some images apart. Float64, which then decides, classifies "
            f"{100 * otherwise:.0f} % of {len(x)} images differently, so the figures are not those of the model as it "
            "runs in float32. Its last layer saturates, or its numbers underflow."
        )
    return found


def in_train_mode(model: Model) -> int:
    """Number of modules in train mode; a plain function has none, and what came through `torch.jit.freeze` no mode."""
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

    logits = _what_decides(victim, x)
    alone = [_what_decides(victim, one.expand_as(x)) for one in x[:_COPIED]]
    return _largest(torch.cat([copies - here for copies, here in zip(alone, logits, strict=False)]), logits)


def memory(victim: Victim, x: Tensor) -> float:
    """How much images that were shown before change the logits of an image, as a share of their size.

    Two copies of the model are asked about images that are new to it, and one of them has seen the like before. A model
    that knows images again and answers as it did then leaves attacks that ask twice nowhere to go. Where it is random
    or cannot be copied, it is taken to remember nothing.

    Example:
        >>> from pclc.execution import Execution
        >>> memory(Victim(nn.Linear(3, 2), Execution().for_attacks(torch.device("cpu"))), torch.eye(3))
        0.0
    """
    if not isinstance(victim.model, nn.Module):
        return 0.0
    try:
        experienced, fresh = (Victim(copy.deepcopy(victim.model), victim.execution) for _ in range(2))
    except Exception:  # whatever a stranger's module raises
        return 0.0
    index = torch.arange(len(x), device=x.device)
    *before, now = [random_point(1 - x, _NEARBY, "Linf", 0, index, draw) for draw in range(4)]
    for like in before:
        experienced.exact_logits(like)
    expected = _what_decides(fresh, now)
    if is_random(fresh, now):  # such answers differ whatever was asked before
        return 0.0
    return _largest(_what_decides(experienced, now) - expected, expected)


def _what_decides(victim: Victim, x: Tensor) -> Tensor:
    """The logits without what they have in common, which decides nothing, and without classes that are masked."""
    finite = torch.nan_to_num(victim.exact_logits(x).double(), posinf=0.0, neginf=0.0)
    return finite - finite.mean(1, keepdim=True)


def _largest(changes: Tensor, logits: Tensor) -> float:
    usual = torch.linalg.vector_norm(logits, dim=1).square().mean().sqrt()
    return float(torch.linalg.vector_norm(changes, dim=1).max() / usual.clamp(min=torch.finfo(usual.dtype).tiny))


def look_at_accuracy(clean: SupportsFloat, classes: int) -> str | None:
    """A sentence where the clean accuracy is below twice chance, and less than a tenth of the way from there to 1."""
    chance = 1 / classes
    if float(clean) >= min(2 * chance, chance + 0.1 * (1 - chance)):
        return None
    return (
        f"The clean accuracy, {clean}, is near chance ({100 * chance:.1f} % for {classes} classes): is the "
        "normalisation missing or applied twice, are the labels numbered as in training, are the weights loaded?"
    )
