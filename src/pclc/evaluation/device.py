"""The device that a model runs on."""

import torch
from torch import Tensor, nn

from pclc.attacks.types import Model


def device_of(model: Model, x: Tensor) -> torch.device:
    """Where the model is; a plain function is taken to be where the images are."""
    if isinstance(model, nn.Module):
        for tensor in (*model.parameters(), *model.buffers()):
            return tensor.device
    return x.device


def device_name(device: torch.device) -> str:
    """Its name in results."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)
