"""A LeNet for 8 x 8 images, where LeNet-5's 5 x 5 kernels would leave nothing."""

from torch import nn

from pclc.models.classifier import Classifier, check_image_size
from pclc.models.registry import register_model


@register_model("lenet8")
def lenet8(num_classes: int = 10, in_channels: int = 1, image_size: int = 8) -> Classifier:
    """Conv 16 of 3 x 3, pool, conv 32 of 3 x 3, pool, 64, classes: 13,706 parameters for scikit-learn's digits.

    Features are the 64 of the hidden layer.
    """
    check_image_size(image_size, smallest=4)
    side = image_size // 4
    body = nn.Sequential(
        nn.Conv2d(in_channels, 16, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * side * side, 64),
        nn.ReLU(),
    )
    return Classifier(body, nn.Linear(64, num_classes), in_channels=in_channels, image_size=image_size)
