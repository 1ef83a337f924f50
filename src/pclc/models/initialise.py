"""Initial weights."""

from torch import nn


def he_initialise(module: nn.Module) -> None:
    """Draw all convolutions of `module` from N(0, 2 / (k² · out_channels)) (He et al. 2015, eq. 14).

    The variance keeps the size of the gradients through ReLU layers. BatchNorm and linear layers keep PyTorch's
    defaults.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
