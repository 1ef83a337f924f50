"""What a model gives for images and what an attack makes of them, batch by batch."""

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from pclc.attacks import Attack
from pclc.attacks.frozen import frozen
from pclc.execution import Execution, ieee_fp32, in_batches


def logits_of(model: nn.Module, x: Tensor, execution: Execution | None = None) -> Tensor:
    """The logits (N, K), in IEEE float32 and eval mode.

    Example:
        >>> logits_of(nn.Identity(), torch.tensor([[1.0, 2.0]]))
        tensor([[1., 2.]])
    """
    logits = _outputs(model, model, x, execution)
    if not (logits < torch.inf).all():  # NaN is not, either; argmax would take it for the largest
        raise ValueError("Expected `model` to return logits, but got NaN or inf for some of the images.")
    return logits


def features_of(model: nn.Module, x: Tensor, execution: Execution | None = None) -> Tensor:
    """The penultimate layer (N, F), of models that have `features`."""
    if not has_features(model):
        raise ValueError(
            f"Expected `model` to have `features(x)`, its penultimate layer, but {type(model).__name__} has none."
        )
    return _outputs(model, model.features, x, execution)  # type: ignore[arg-type]


def has_features(model: nn.Module) -> bool:
    """Whether it has `features(x)`, and not just a part of that name."""
    features = getattr(model, "features", None)
    return callable(features) and not isinstance(features, nn.Module)


def attacked(
    model: nn.Module, attack: Attack, x: Tensor, y: Tensor, seed: int = 0, execution: Execution | None = None
) -> Tensor:
    """The adversarial examples of an attack (N, ...), the same whatever the batches are."""
    index = torch.arange(len(x), device=x.device)
    craft = partial(_craft, model, attack, seed)
    return in_batches(craft, x, y, index, size=(execution or Execution()).resolved_batch_size)


def _craft(model: nn.Module, attack: Attack, seed: int, x: Tensor, y: Tensor, index: Tensor) -> Tensor:
    return attack(model, x, y, seed=seed, index=index)


def _outputs(model: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor, execution: Execution | None) -> Tensor:
    with torch.no_grad(), ieee_fp32(), frozen(model):
        return in_batches(forward, x, size=(execution or Execution()).resolved_batch_size)
