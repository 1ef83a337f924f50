"""The 8 x 8 digits that come with scikit-learn: the one data set that needs no download."""

from pathlib import Path

import numpy as np

from pclc.data.description import Arrays
from pclc.data.split import stratified_indices
from pclc.extras import needs_extra

TEST_SIZE = 360


def read_digits(paths: tuple[Path, ...], split: str) -> Arrays:
    """Return a fixed split of the 1,797 digits; their 17 levels of grey are scaled to a byte."""
    with needs_extra("data", "The data set digits"):
        from sklearn.datasets import load_digits
    bunch = load_digits()
    labels = bunch.target.astype(np.int64)
    images = np.rint(bunch.images * (255 / 16)).astype(np.uint8)
    test = stratified_indices(labels, TEST_SIZE, "test of digits")
    chosen = test if split == "test" else np.setdiff1d(np.arange(len(labels)), test)
    return Arrays(images[chosen][:, None], labels[chosen])  # in this order, which keeps them contiguous
