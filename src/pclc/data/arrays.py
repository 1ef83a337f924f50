"""What every reader of official files returns."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class Arrays(NamedTuple):
    """Images (N, C, H, W), their labels, and the names of the classes where only the files have them."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...] | None = None
