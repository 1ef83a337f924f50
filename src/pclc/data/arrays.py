"""What every reader of official files gives back."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Arrays(NamedTuple):
    """Images (N, C, H, W), their labels, and the names of the classes where the files are what tells them."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...] | None = None
