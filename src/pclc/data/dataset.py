"""A labelled set of images that fits in memory, kept as bytes."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False, repr=False)
class Dataset:
    """Images as uint8 (N, C, H, W), their labels as int64 (N,), and what the labels mean.

    Bytes take a quarter of the memory of floats, so that the whole set can live on the device; a batch becomes float in
    [0, 1] only when it is used.

    >>> black = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    >>> toy = Dataset(black, torch.tensor([0, 1, 1, 0]), classes=("a", "b"), name="toy", split="train")
    >>> len(toy), toy.subset([1, 2]).labels.tolist()
    (4, [1, 1])
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    name: str
    split: str
    _read: tuple[int, ...] | None = field(default=None, init=False)  # so that `replace` leaves it behind

    def __post_init__(self) -> None:
        images, labels = self.images, self.labels
        for name, value in (("images", images), ("labels", labels)):
            if not isinstance(value, Tensor):
                raise TypeError(f"Expected argument `{name}` to be a tensor, but got {type(value).__name__}.")
        if isinstance(self.classes, str) or not hasattr(self.classes, "__len__"):  # "cat" is not three classes
            raise TypeError(f"Expected argument `classes` to be a tuple of names, but got {self.classes!r}.")
        if images.dtype != torch.uint8 or images.ndim != 4:
            raise ValueError(
                f"Expected argument `images` to be uint8 of shape (N, C, H, W), but got {images.dtype} "
                f"of shape {tuple(images.shape)}."
            )
        if images.shape[3] in (1, 3) and min(images.shape[1:3]) > 4:  # crops and flips would take channels for columns
            raise ValueError(
                "Expected argument `images` to be of shape (N, C, H, W), but got the shape "
                f"{tuple(images.shape)}, which looks like (N, H, W, C): use images.permute(0, 3, 1, 2)."
            )
        if labels.dtype != torch.int64 or labels.ndim != 1:
            raise ValueError(
                f"Expected argument `labels` to be int64 of shape (N,), but got {labels.dtype} "
                f"of shape {tuple(labels.shape)}."
            )
        if len(images) != len(labels):
            raise ValueError(
                f"Expected one label for each image, but got {len(images)} images and {len(labels)} labels."
            )
        if len(images) == 0:
            raise ValueError(f"Expected at least one image in {self.name!r}, but got none.")
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= len(self.classes):
            raise ValueError(
                f"Expected the labels of {self.name!r} to be between 0 and {len(self.classes) - 1}, "
                f"but they go from {low} to {high}."
            )

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        shape = " x ".join(str(size) for size in self.images.shape[1:])
        return f"Dataset({self.name}, {self.split}: {len(self)} images of {shape}, {len(self.classes)} classes)"

    @property
    def as_read(self) -> bool:
        """Whether these are all the examples of that name, as they were read from its files and unchanged."""
        return self._read is not None and self._read == self._versions()

    def mark_as_read(self) -> "Dataset":
        """Note that the tensors are what the files hold. Parts, changed copies and changes in place lose this mark."""
        object.__setattr__(self, "_read", self._versions())
        return self

    def _versions(self) -> tuple[int, ...]:
        """PyTorch counts the in-place changes of a tensor, but not of one that was made in inference mode."""
        return tuple(-1 if value.is_inference() else value._version for value in (self.images, self.labels))

    def subset(self, indices: Sequence[int] | Tensor) -> "Dataset":
        """Return the examples at ``indices``, in that order."""
        chosen = torch.as_tensor(indices, device=self.labels.device)
        if chosen.ndim != 1 or (len(chosen) > 0 and chosen.dtype not in (torch.int64, torch.int32)):
            raise ValueError(
                f"Expected argument `indices` to be a list of whole numbers, but got {chosen.dtype} "
                f"of shape {tuple(chosen.shape)}."
            )
        if len(chosen) == 0:
            raise ValueError("Expected argument `indices` to name at least one example, but it is empty.")
        if int(chosen.min()) < 0 or int(chosen.max()) >= len(self):
            raise ValueError(
                f"Expected argument `indices` to be between 0 and {len(self) - 1}, "
                f"but they go from {int(chosen.min())} to {int(chosen.max())}."
            )
        return replace(self, images=self.images[chosen], labels=self.labels[chosen])
