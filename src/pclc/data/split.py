"""Fixed, class-stratified splits: the same examples on every machine, with every version of every library."""

import hashlib
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import torch

from pclc.data.dataset import Dataset


def stratified_indices(labels: npt.NDArray[np.int64], size: int, key: str) -> npt.NDArray[np.int64]:
    """Choose ``size`` examples, each class in proportion, and return their indices in ascending order.

    The choice is a function of the labels, ``size`` and ``key`` alone. Each example draws 64 bits from a counter-based
    generator keyed with ``key``, and the smallest draws of a class are taken: numpy guarantees the raw bits of Philox
    forever, but not its shuffles.
    """
    counts = np.bincount(labels)
    share = counts * (size / len(labels))
    taken = np.floor(share).astype(np.int64)
    # Largest remainder: what rounding down left over goes to the classes that lost the most.
    leftover = np.argsort(taken - share, kind="stable")[: size - int(taken.sum())]
    taken[leftover] += 1

    digest = hashlib.sha256(key.encode()).digest()
    draws = np.random.Philox(key=int.from_bytes(digest[:16], "little")).random_raw(len(labels))
    by_class_then_draw = np.lexsort((draws, labels))
    first_of_class = np.cumsum(counts) - counts
    chosen = [by_class_then_draw[start : start + count] for start, count in zip(first_of_class, taken, strict=True)]
    return np.sort(np.concatenate(chosen))


def split_validation(dataset: Dataset, fraction: float = 0.1) -> tuple[Dataset, Dataset]:
    """Split a validation set off a training set, so that no choice has to be made on test data.

    The split depends only on the labels and the name of the data set, and keeps the proportions of the classes and the
    order of the examples.

    >>> labels = torch.arange(100) % 2
    >>> toy = Dataset(torch.zeros(100, 1, 2, 2, dtype=torch.uint8), labels, ("even", "odd"), "toy", "train")
    >>> train, validation = split_validation(toy, fraction=0.2)
    >>> validation, len(train)
    (Dataset(toy, validation: 20 images of 1 x 2 x 2, 2 classes), 80)
    """
    if not 0 < fraction < 1:
        raise ValueError(f"Expected argument `fraction` to be between 0 and 1, both excluded, but got {fraction}.")
    size = round(fraction * len(dataset))
    if not 0 < size < len(dataset):
        raise ValueError(
            f"Expected argument `fraction` to leave examples on both sides, but {fraction} of {len(dataset)} is {size}."
        )
    chosen = stratified_indices(dataset.labels.cpu().numpy(), size, f"validation of {dataset.name}")
    rest = np.setdiff1d(np.arange(len(dataset)), chosen)
    train = dataset.subset(torch.from_numpy(rest))
    return train, replace(dataset.subset(torch.from_numpy(chosen)), split="validation")
