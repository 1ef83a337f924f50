"""Training batches that never leave the device: shuffled, gathered and augmented there."""

import hashlib

import torch
from torch import Tensor

from pclc.data.augment import Augmentation
from pclc.data.dataset import Dataset


def epoch_seed(seed: int, *position: int | str) -> int:
    """A 63-bit number that is a function of (seed, position) alone, for generators that must not depend on history."""
    text = ":".join(str(part) for part in (seed, *position))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


class Feed:
    """Batches of a data set in an order that is a function of (seed, epoch) and of nothing else.

    An epoch is as many full batches as the data holds; the examples left over differ from epoch to epoch. Each process
    takes its share of every batch. `next_batch` reads its place from a tensor, so that a CUDA graph that contains it
    serves a new batch at every replay.

    Attributes:
        index: (n,) int64, the places in the data set of the examples in the last batch.
        epoch: (1,) int64, the number of the epoch.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int,
        augmentation: Augmentation,
        device: torch.device,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        batch_size = min(batch_size, len(dataset))
        if batch_size % world_size:
            raise ValueError(f"Expected a batch size that {world_size} processes can share, but got {batch_size}.")
        self.batch_size = batch_size
        self.batches = len(dataset) // batch_size
        self._share = slice(rank * batch_size // world_size, (rank + 1) * batch_size // world_size)
        self._augmentation = augmentation
        self._images, self._labels = dataset.images.to(device), dataset.labels.to(device)
        shape = self.batches, self._share.stop - self._share.start
        self._order = torch.zeros(shape, dtype=torch.long, device=device)
        self._uniforms = torch.zeros(*shape, augmentation.columns, device=device)
        self._place = torch.zeros(1, dtype=torch.long, device=device)
        self.epoch = torch.zeros(1, dtype=torch.long, device=device)
        self.index = self._order[0]

    def start_epoch(self, seed: int, epoch: int) -> None:
        """Lay out the batches of this epoch."""
        generator = torch.Generator().manual_seed(epoch_seed(seed, "feed", epoch))
        used = self.batches * self.batch_size
        order = torch.randperm(len(self._images), generator=generator, device="cpu")[:used].view(self.batches, -1)
        uniforms = self._augmentation.draw(used, generator).view(self.batches, self.batch_size, -1)
        self._order.copy_(order[:, self._share], non_blocking=True)
        self._uniforms.copy_(uniforms[:, self._share], non_blocking=True)
        self._place.zero_()
        self.epoch.fill_(epoch)

    def step_back(self) -> None:
        """Serve the last batch once more."""
        self._place.sub_(1).remainder_(self.batches)

    def next_batch(self) -> tuple[Tensor, Tensor]:
        """Images as float32 in [0, 1], and labels."""
        chosen = self.index = self._order.index_select(0, self._place)[0]
        uniforms = self._uniforms.index_select(0, self._place)[0]
        self._place.add_(1).remainder_(self.batches)
        return self._augmentation(self._images[chosen], uniforms), self._labels[chosen]
