"""The base of every model of this package: a body that gives features and a head that gives logits."""

from torch import Tensor, nn


class Classifier(nn.Module):
    """logits = head(body(x)), with x float in [0, 1] of shape (N, in_channels, image_size, image_size).

    `features(x)` is the penultimate layer (N, F); `forward(x)` is `head(features(x))`, the logits (N, num_classes).
    """

    def __init__(self, body: nn.Module, head: nn.Module, *, in_channels: int, image_size: int) -> None:
        super().__init__()
        self.body = body
        self.head = head
        self.in_channels = in_channels
        self.image_size = image_size

    def features(self, x: Tensor) -> Tensor:
        """Return the penultimate layer, (N, F)."""
        self._check(x)
        features: Tensor = self.body(x)
        return features

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits, (N, num_classes)."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def _check(self, x: Tensor) -> None:
        """Check shape and dtype only: torch.compile does that while tracing, so that it costs nothing at run time."""
        if x.ndim != 4 or tuple(x.shape[1:]) != (self.in_channels, self.image_size, self.image_size):
            expected = f"(N, {self.in_channels}, {self.image_size}, {self.image_size})"
            raise ValueError(f"Expected `x` to be of shape {expected}, but got {tuple(x.shape)}.")
        if not x.is_floating_point():
            raise ValueError(f"Expected `x` to be floating point with values in [0, 1], but got {x.dtype}.")


def check_image_size(image_size: int, *, smallest: int) -> None:
    """Refuse images that are too small for the pooling layers."""
    if image_size < smallest:
        raise ValueError(
            f"Expected argument `image_size` to be at least {smallest} for this model, but got {image_size}."
        )


def he_initialise(module: nn.Module) -> None:
    """Draw all convolutions of `module` from N(0, 2 / (k² · out_channels)) (He et al. 2015, eq. 14).

    The variance keeps the size of the gradients through ReLU layers. BatchNorm and linear layers keep PyTorch's
    defaults.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
