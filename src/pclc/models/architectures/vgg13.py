"""VGG-13 with BatchNorm, the paper's model for colour images."""

from torch import nn

from pclc.models.classifier import Classifier, check_image_size, he_initialise
from pclc.models.registry import register_model

_BLOCKS = (64, 128, 256, 512, 512)


@register_model("vgg13")
def vgg13(num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Classifier:
    """VGG-13 (Simonyan & Zisserman 2015, configuration B) for small images, about 9.4 million parameters.

    Five blocks of two 3 x 3 convolutions (each with BatchNorm and ReLU; no bias, which BatchNorm would cancel) and a
    2 x 2 max pooling; then dropout of one half and one linear layer, as usual on CIFAR, instead of the 120 million
    parameters of ImageNet's classifier. The five poolings leave 1 x 1 of 32 x 32 pixels and 2 x 2 of 64 x 64; the mean
    over what is left makes 512 features of either, so that both sizes have the same weights.
    """
    return _vgg13(nn.Dropout(0.5), num_classes, in_channels, image_size)


@register_model("vgg13_no_dropout")
def vgg13_no_dropout(num_classes: int = 10, in_channels: int = 3, image_size: int = 32) -> Classifier:
    """VGG-13 without its dropout, as many have it on CIFAR; the paper does not say which it means."""
    return _vgg13(nn.Identity(), num_classes, in_channels, image_size)


def _vgg13(dropout: nn.Module, num_classes: int, in_channels: int, image_size: int) -> Classifier:
    check_image_size(image_size, smallest=32)
    layers: list[nn.Module] = []
    channels = in_channels
    for width in _BLOCKS:
        layers += [*_convolution(channels, width), *_convolution(width, width), nn.MaxPool2d(2)]
        channels = width
    body = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    he_initialise(body)
    head = nn.Sequential(dropout, nn.Linear(channels, num_classes))
    return Classifier(body, head, in_channels=in_channels, image_size=image_size)


def _convolution(in_channels: int, out_channels: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )
