"""From a name to a data set in memory."""

import os
import warnings

import torch

from pclc.data.dataset import Dataset
from pclc.data.description import SPLITS
from pclc.data.registry import describe


def load_dataset(name: str, split: str = "train", root: str | os.PathLike[str] | None = None) -> Dataset:
    """Load a split of a data set from its official files.

    Args:
        name: one of :func:`dataset_names`.
        split: ``"train"`` or ``"test"``; :func:`split_validation` makes a validation set.
        root: the folder with torchvision's folders; by default ``PCLC_DATA``, else the user's cache folder.

    >>> load_dataset("digits")
    Dataset(digits, train: 1437 images of 1 x 8 x 8, 10 classes)
    """
    description = describe(name)
    if split not in SPLITS:
        raise ValueError(
            f"Expected argument `split` to be 'train' or 'test', but got {split!r}; "
            "pclc.data.split_validation splits a validation set off the training set."
        )
    folder = description.folder(root)
    found = description.find(folder, split)
    if found is None:
        raise FileNotFoundError(description.missing(folder, split))
    layout, paths = found
    images, labels, class_names = layout.read(paths, split)

    where = paths[0] if paths else name
    if len(images) != len(labels):
        raise ValueError(
            f"{where}: expected one label for each image, but got {len(images)} images and {len(labels)} labels."
        )
    if len(images) == 0:
        raise ValueError(f"{where}: expected at least one image, but got none.")
    if images.shape[1:] != description.shape:
        expected, got = (" x ".join(map(str, shape)) for shape in (description.shape, images.shape[1:]))
        raise ValueError(f"{where}: expected images of {expected}, but got {got}.")
    outside = labels[(labels < 0) | (labels >= description.num_classes)]
    if len(outside) > 0:
        raise ValueError(f"{where}: expected labels between 0 and {description.num_classes - 1}, but got {outside[0]}.")
    if len(images) != description.counts[split]:
        warnings.warn(
            f"{where}: expected the {description.counts[split]} images of the {split} split of {name}, but got "
            f"{len(images)}. Is the copy complete? `pclc data check {name}` checks every file.",
            stacklevel=2,
        )
    return Dataset(
        torch.from_numpy(images),
        torch.from_numpy(labels),
        class_names or description.classes,
        name,
        split,
    ).mark_as_read()
