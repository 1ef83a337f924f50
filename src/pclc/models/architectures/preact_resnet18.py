"""PreAct-ResNet-18, the usual model of adversarial training on CIFAR."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from pclc.models.classifier import Classifier, check_image_size, he_initialise
from pclc.models.registry import register_model

_STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))  # channels, stride of the first of two blocks


@register_model("preact_resnet18")
def preact_resnet18(num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Classifier:
    """ResNet-18 with pre-activation (He et al. 2016, "Identity mappings"), 11,172,170 parameters for 10 classes.

    The stem is CIFAR's, one 3 x 3 convolution at full resolution. As in the paper, and in Rice et al. 2020, BatchNorm
    and ReLU follow the last block. The mean over all positions gives 512 features, whatever the image size.
    """
    check_image_size(image_size, smallest=8)
    layers: list[nn.Module] = [nn.Conv2d(in_channels, 64, 3, padding=1, bias=False)]
    channels = 64
    for width, stride in _STAGES:
        layers += [PreActBlock(channels, width, stride), PreActBlock(width, width, stride=1)]
        channels = width
    body = nn.Sequential(*layers, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    he_initialise(body)
    return Classifier(body, nn.Linear(channels, num_classes), in_channels=in_channels, image_size=image_size)


class PreActBlock(nn.Module):
    """x' + conv(ReLU(BN(conv(a)))) with a = ReLU(BN(x)).

    x' is x or, where the shape changes, a 1 x 1 convolution of a.
    """

    norms_after: ClassVar = {"conv1": "bn2"}

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.bn1 = nn.BatchNorm2d(in_channels)
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.projection: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.projection = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, in_channels, H, W) to (N, out_channels, ⌈H / stride⌉, ⌈W / stride⌉)."""
        activated = F.relu(self.bn1(x))
        shortcut = x if self.projection is None else self.projection(activated)
        out: Tensor = shortcut + self.conv2(F.relu(self.bn2(self.conv1(activated))))
        return out
