"""Whether an example is fooled: decided by a forward pass in IEEE float32 (or float64, where the images are)."""

import torch
from torch import Tensor

from pclc.attacks.cost import Cost
from pclc.attacks.types import Model
from pclc.execution import ieee_fp32


def is_success(logits: Tensor, y: Tensor, targeted: bool) -> Tensor:
    """(N,) flags: the predicted class is not `y`, or is `y` where the attack is targeted."""
    predicted = logits.argmax(1)
    return predicted == y if targeted else predicted != y


@torch.no_grad()
def exact_logits(model: Model, x: Tensor, cost: Cost) -> Tensor:
    """The logits (N, K), without TF32 and without autocast."""
    cost.forwards += len(x)
    with ieee_fp32():
        return model(x)


def fooled(model: Model, x: Tensor, y: Tensor, logits: Tensor, targeted: bool, cost: Cost) -> Tensor:
    """(N,) flags for images whose logits are known from crafting.

    On the CPU without autocast these are the exact logits, and decide. Elsewhere they may have come from TF32 or bf16:
    they nominate, and one exact pass over the nominated rows decides.
    """
    success = is_success(logits, y, targeted)
    if logits.device.type == "cpu" and logits.dtype == x.dtype and not torch.is_autocast_enabled("cpu"):
        return success
    nominated = success.nonzero().squeeze(1)
    if len(nominated):
        confirmed = is_success(exact_logits(model, x[nominated], cost), y[nominated], targeted)
        success = success.index_put((nominated,), confirmed)
    return success
