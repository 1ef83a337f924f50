"""LeNet-5, the paper's model for grey images."""

from torch import nn

from pclc.models.classifier import Classifier, check_image_size
from pclc.models.registry import register_model


@register_model("lenet5")
def lenet5(num_classes: int = 10, in_channels: int = 1, image_size: int = 28) -> Classifier:
    """LeNet-5 (LeCun et al. 1998) as it is used today, with max pooling and ReLU.

    Conv 6 of 5 x 5 (padded by 2, since the original takes 32 x 32), pool, conv 16 of 5 x 5, pool, 120, 84, classes:
    61,706 parameters for 10 classes of 28 x 28 grey images. Features are the 84 of the last hidden
    layer.
    """
    check_image_size(image_size, smallest=12)
    side = (image_size // 2 - 4) // 2
    body = nn.Sequential(
        nn.Conv2d(in_channels, 6, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * side * side, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return Classifier(body, nn.Linear(84, num_classes), in_channels=in_channels, image_size=image_size)
