"""Optimizers whose learning rate can change under a captured step."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from pclc.training.config import TrainConfig

_MOMENTUM = 0.9
# How an optimizer computes, not what.
_FLAGS = ("foreach", "capturable", "differentiable", "fused")


def make_optimizer(
    config: TrainConfig, parameters: Iterable[nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    """Adam, or SGD with Nesterov momentum, fused: one launch for all parameters.

    On CUDA the learning rate is a tensor, because a CUDA graph replays numbers as they were recorded.
    """
    on_cuda = device.type == "cuda"
    lr = torch.tensor(config.lr, device=device) if on_cuda else config.lr
    decay = config.weight_decay
    if config.optimizer == "adam":
        return torch.optim.Adam(parameters, lr=lr, weight_decay=decay, fused=True, capturable=on_cuda)
    momentum = _MOMENTUM if config.momentum is None else config.momentum
    return torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=decay, nesterov=momentum > 0, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Change the learning rate, in place where it is a tensor."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(lr)
        else:
            group["lr"] = lr


def load_optimizer(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Continue from a checkpoint, perhaps of another device.

    The flags, and whether the learning rate is a tensor, stay those of `optimizer`, because they depend on the device.
    """
    own = [(group["lr"], {flag: group[flag] for flag in _FLAGS if flag in group}) for group in optimizer.param_groups]
    # Before loading: torch places tensors according to the flags in the state.
    groups = [{**group, **flags} for group, (_, flags) in zip(state["param_groups"], own, strict=True)]
    optimizer.load_state_dict({**state, "param_groups": groups})
    for group, (rate, _) in zip(optimizer.param_groups, own, strict=True):
        lr = float(group["lr"])
        group["lr"] = rate.fill_(lr) if isinstance(rate, Tensor) else lr
