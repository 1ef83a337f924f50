"""Batches on the device: every example once an epoch, an order that depends on (seed, epoch) alone."""

import pytest
import torch

from pclc.data import Dataset
from pclc.data.augment import AUGMENTATIONS
from pclc.data.feed import Feed, epoch_seed

CPU = torch.device("cpu")


def numbered(n: int) -> Dataset:
    """Images that show their own number."""
    images = torch.arange(n, dtype=torch.uint8).view(n, 1, 1, 1).expand(n, 1, 8, 8).contiguous()
    return Dataset(images, torch.arange(n) % 2, ("even", "odd"), "numbered", "train")


def epoch(feed: Feed, seed: int, number: int) -> list[list[int]]:
    feed.start_epoch(seed, number)
    batches = []
    for _ in range(feed.batches):
        images, labels = feed.next_batch()
        shown = (images[:, 0, 4, 4] * 255).round().long()
        assert (shown % 2).equal(labels), "images and labels stay together"
        assert images.dtype == torch.float32
        batches.append(shown.tolist())
    return batches


def test_every_example_once_and_a_remainder_left_over() -> None:
    feed = Feed(numbered(50), 8, AUGMENTATIONS["none"], CPU)
    seen = [example for batch in epoch(feed, 0, 0) for example in batch]
    assert feed.batches == 6
    assert len(set(seen)) == 48


def test_order_is_a_function_of_seed_and_epoch() -> None:
    feed, another = (Feed(numbered(50), 8, AUGMENTATIONS["none"], CPU) for _ in range(2))
    first = epoch(feed, 3, 0)
    later = epoch(feed, 3, 7)
    assert first != later
    assert epoch(another, 3, 7) == later, "without the epochs before it"
    assert epoch(another, 4, 7) != later


def test_processes_share_every_batch() -> None:
    whole = epoch(Feed(numbered(50), 8, AUGMENTATIONS["none"], CPU), 0, 0)
    halves = [epoch(Feed(numbered(50), 8, AUGMENTATIONS["none"], CPU, rank, 2), 0, 0) for rank in range(2)]
    assert [a + b for a, b in zip(*halves, strict=True)] == whole
    with pytest.raises(ValueError, match="a batch size that 3 processes can share, but got 8"):
        Feed(numbered(50), 8, AUGMENTATIONS["none"], CPU, 0, 3)


def test_augmentation_belongs_to_the_example_not_to_the_process() -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (20, 3, 8, 8), dtype=torch.uint8, generator=generator)
    dataset = Dataset(images, torch.zeros(20, dtype=torch.long), ("only", "other"), "noise", "train")
    whole = Feed(dataset, 10, AUGMENTATIONS["crop-flip"], CPU)
    half = Feed(dataset, 10, AUGMENTATIONS["crop-flip"], CPU, 1, 2)
    whole.start_epoch(0, 0)
    half.start_epoch(0, 0)
    assert whole.next_batch()[0][5:].equal(half.next_batch()[0])


def test_a_small_set_is_one_batch() -> None:
    assert Feed(numbered(5), 8, AUGMENTATIONS["none"], CPU).batches == 1


def test_seeds_do_not_collide() -> None:
    positions = [(seed, what, number) for seed in range(20) for what in ("feed", "dropout") for number in range(20)]
    assert len({epoch_seed(*position) for position in positions}) == 800
    assert epoch_seed(0, "feed", 0) == 5422391145218493030, "old runs must go on with the same numbers"


def test_a_batch_can_be_served_again() -> None:
    feed = Feed(numbered(50), 8, AUGMENTATIONS["none"], CPU)
    feed.start_epoch(0, 0)
    first = feed.next_batch()[0]
    feed.step_back()
    assert feed.next_batch()[0].equal(first)
