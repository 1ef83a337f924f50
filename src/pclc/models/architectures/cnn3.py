"""The substitute from which the paper transfers attacks to LeNet-5."""

from torch import nn

from pclc.models.classifier import Classifier, check_image_size
from pclc.models.registry import register_model


@register_model("cnn3")
def cnn3(num_classes: int = 10, in_channels: int = 1, image_size: int = 28) -> Classifier:
    """The paper's "3-layer CNN", in the sizes of the authors' code: three convolutions of 5 x 5 and a hidden layer.

    Conv 16, conv 32, pool, conv 64, pool, 100, classes; no padding: 123,222 parameters for 10 classes of 28 x 28 grey
    images. Features are the 100 of the hidden layer.
    """
    check_image_size(image_size, smallest=20)
    side = ((image_size - 8) // 2 - 4) // 2
    body = nn.Sequential(
        nn.Conv2d(in_channels, 16, 5),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * side * side, 100),
        nn.ReLU(),
    )
    return Classifier(body, nn.Linear(100, num_classes), in_channels=in_channels, image_size=image_size)
