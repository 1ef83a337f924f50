"""From a batch to its loss: on clean images, or on adversarial ones crafted on the spot."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pclc.attacks.frozen import frozen
from pclc.execution import Execution
from pclc.training.adversarial import AdversarialConfig
from pclc.training.crafting import craft
from pclc.training.robust_losses import Criterion, mart_loss, mix_loss, pc_adversarial_loss, trades_loss


class Batch(NamedTuple):
    """The examples of a step, with the place and epoch that key their random numbers."""

    x: Tensor
    y: Tensor
    place: Tensor  # in the training set
    epoch: Tensor

    def parts(self, count: int) -> list["Batch"]:
        """Split the batch into `count` parts."""
        columns = (self.x.chunk(count), self.y.chunk(count), self.place.chunk(count))
        return [Batch(x, y, place, self.epoch) for x, y, place in zip(*columns, strict=True)]


# The mean loss of a batch, and the (N, K) logits from which training accuracy is computed.
BatchLoss = Callable[[Criterion, Batch], tuple[Tensor, Tensor]]


# For the other methods the loss is the criterion on the adversarial images.
_LOSSES: dict[str, Callable[..., Tensor]] = {
    "mix": mix_loss,
    "trades": trades_loss,
    "mart": mart_loss,
    "pc": pc_adversarial_loss,
}


def plain_loss(forward: Callable[[Tensor], Tensor], execution: Execution) -> BatchLoss:
    """The criterion on clean images."""

    def loss(criterion: Criterion, batch: Batch) -> tuple[Tensor, Tensor]:
        with execution.arithmetic():
            logits = forward(batch.x)
            return criterion(logits, batch.y), logits

    return loss


def adversarial_loss(
    model: nn.Module,
    attacked: Callable[[], Callable[[Tensor], Tensor]],
    forward: Callable[[Tensor], Tensor],
    config: AdversarialConfig,
    seed: int,
    execution: Execution,
) -> BatchLoss:
    """Craft on the model in eval mode, then compute the method's loss in training mode.

    Clean images, where the method needs them, go through the network in one pass with the adversarial ones, so that
    BatchNorm sees both as one batch. Training accuracy is that on the adversarial images. Nothing waits for the device.

    Args:
        model: its mode and weights are frozen while crafting.
        attacked: returns the forward pass for crafting, with current weights: `model` or something made from it, but
            without the wrapper for several processes.
        forward: the forward pass for training.
        config: resolved.
        seed: of crafting's random numbers.
        execution: precision and layout.
    """

    def loss(criterion: Criterion, batch: Batch) -> tuple[Tensor, Tensor]:
        with execution.arithmetic():
            with frozen(model):
                x_adv = craft(attacked(), batch.x, batch.y, batch.place, batch.epoch, config, seed)
            clean: Tensor | None
            if config.clean:
                both = execution.lay_out(torch.cat([batch.x, x_adv]))
                clean, adversarial = forward(both).chunk(2)
            else:
                clean, adversarial = None, forward(x_adv)
            if config.method not in _LOSSES:
                return criterion(adversarial, batch.y), adversarial
            return _LOSSES[config.method](clean, adversarial, batch.y, criterion, **config.weights), adversarial

    return loss
