"""The cropped digits of SVHN, in MATLAB's format."""

from pathlib import Path

import numpy as np

from pclc.data.description import Arrays
from pclc.extras import needs_extra


def read_svhn(paths: tuple[Path, ...], split: str) -> Arrays:
    """Read ``X`` (height, width, channel, image) and ``y``, where the label 10 stands for the digit 0."""
    with needs_extra("data", "Reading SVHN"):
        import scipy.io
    (path,) = paths
    try:
        content = scipy.io.loadmat(path, variable_names=["X", "y"])
    except Exception as error:  # a damaged file raises errors of all kinds, also zlib's
        raise ValueError(f"{path} is truncated or not a MATLAB file: {error}.") from error
    if "X" not in content or "y" not in content:
        raise ValueError(f"{path}: expected the variables X and y of SVHN's cropped digits.")
    images, labels = content["X"], content["y"].reshape(-1)
    if images.dtype != np.uint8 or images.ndim != 4:
        raise ValueError(
            f"{path}: expected X to be uint8 (height, width, channel, image), but got {images.dtype} "
            f"of shape {images.shape}."
        )
    if labels.dtype.kind not in "iu" or (len(labels) > 0 and not 1 <= labels.min() <= labels.max() <= 10):
        raise ValueError(f"{path}: expected labels between 1 and 10, where 10 is the digit 0.")
    return Arrays(np.ascontiguousarray(images.transpose(3, 2, 0, 1)), labels.astype(np.int64) % 10)
