"""ResNet-56 for CIFAR, the paper's substitute for VGG-13 and its model in Table 2."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional as F

from pclc.models.classifier import Classifier, check_image_size, he_initialise
from pclc.models.registry import register_model

_BLOCKS_A_STAGE = 9  # 6 n + 2 = 56 layers
_STAGES = ((16, 1), (32, 2), (64, 2))  # channels, stride of the first block


@register_model("resnet56")
def resnet56(num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Classifier:
    """ResNet-56 (He et al. 2016, section 4.2), 853,018 parameters for 10 classes.

    A 3 x 3 convolution, then three stages of nine blocks with 16, 32 and 64 channels, each stage at half the resolution
    of the one before, and the mean over all positions: 64 features, whatever the image size.
    """
    check_image_size(image_size, smallest=4)
    layers: list[nn.Module] = [nn.Conv2d(in_channels, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    channels = 16
    for width, first_stride in _STAGES:
        for block in range(_BLOCKS_A_STAGE):
            layers.append(BasicBlock(channels, width, stride=first_stride if block == 0 else 1))
            channels = width
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    he_initialise(body)
    return Classifier(body, nn.Linear(channels, num_classes), in_channels=in_channels, image_size=image_size)


class BasicBlock(nn.Module):
    """ReLU(x' + BN(conv(ReLU(BN(conv(x)))))), where x' is x or, where the shape changes, the shortcut of option A.

    Option A has no parameters: every second row and column of x, and zeros for the new channels.
    """

    norms_after: ClassVar = {"conv1": "bn1", "conv2": "bn2"}

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.stride = stride
        self.new_channels = out_channels - in_channels

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, in_channels, H, W) to (N, out_channels, ⌈H / stride⌉, ⌈W / stride⌉)."""
        out = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(out + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        """Give x the shape of the block's output."""
        if self.stride != 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.new_channels:
            x = F.pad(x, (0, 0, 0, 0, 0, self.new_channels))
        return x
