import hashlib

import numpy as np
import pytest
import torch

from pclc.data import Dataset, load_dataset, split_validation
from pclc.data.split import stratified_indices

PINNED_START = [9, 11, 22, 25, 31]
PINNED_DIGEST = "108708fbdb1d3a788c496fd066a9fb9a024e197c0106d8c58d8fb29a90f3cc6e"
PINNED_DIGITS = "ac158cccc9a4285f"


def numbered(labels, name="toy"):
    """A data set whose images are their own index, so that a split can be read off it."""
    labels = torch.as_tensor(labels)
    index = torch.arange(len(labels))
    images = torch.stack([index // 256, index % 256], 1).to(torch.uint8).reshape(-1, 1, 1, 2)
    return Dataset(images, labels, tuple(map(str, range(int(labels.max()) + 1))), name, "train")


def indices(dataset):
    high, low = dataset.images.flatten(1).long().T
    return (256 * high + low).tolist()


LABELS = np.repeat(np.arange(4), [400, 100, 50, 9]).tolist()


def test_parts_are_disjoint_complete_and_in_order():
    train, validation = split_validation(numbered(LABELS))
    assert sorted(indices(train) + indices(validation)) == list(range(len(LABELS)))
    assert indices(train) == sorted(indices(train))
    assert indices(validation) == sorted(indices(validation))
    assert (train.split, validation.split) == ("train", "validation")


def test_every_class_gives_its_share():
    _, validation = split_validation(numbered(LABELS), fraction=0.1)
    assert torch.bincount(validation.labels).tolist() == [40, 10, 5, 1]


def test_the_size_is_exact_where_shares_are_not_whole():
    labels = np.repeat(np.arange(3), [5, 5, 5])
    assert np.bincount(labels[stratified_indices(labels, 7, "key")]).tolist() == [3, 2, 2]


def test_labels_go_with_their_images():
    for part in split_validation(numbered(LABELS)):
        assert part.labels.tolist() == [LABELS[i] for i in indices(part)]


def test_the_split_is_the_same_for_ever():
    chosen = stratified_indices(np.arange(1000) % 10, 100, "validation of mnist")
    digest = hashlib.sha256(chosen.astype("<i8").tobytes()).hexdigest()
    assert chosen[:5].tolist() == PINNED_START
    assert digest == PINNED_DIGEST


def test_the_split_neither_uses_nor_changes_global_generators():
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    first = indices(split_validation(numbered(LABELS))[1])
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002
    torch.manual_seed(1)
    assert indices(split_validation(numbered(LABELS))[1]) == first


def test_another_name_gives_another_split():
    assert indices(split_validation(numbered(LABELS))[1]) != indices(split_validation(numbered(LABELS, "other"))[1])


@pytest.mark.parametrize("fraction", [0, 1, -0.1, 1.5, float("nan")])
def test_a_fraction_outside_gets_a_sentence(fraction):
    with pytest.raises(ValueError, match="`fraction` to be between 0 and 1"):
        split_validation(numbered(LABELS), fraction)


def test_a_fraction_that_leaves_nothing_gets_a_sentence():
    with pytest.raises(ValueError, match=r"0.1 of 2 is 0"):
        split_validation(numbered([0, 1]))


def test_digits_have_a_fixed_stratified_split():
    from sklearn.datasets import load_digits

    train, test = load_dataset("digits"), load_dataset("digits", "test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.images.shape[1:] == (1, 8, 8)
    counts = torch.bincount(test.labels)
    assert counts.min() >= 34
    assert counts.max() <= 37
    assert hashlib.sha256(test.images.numpy().tobytes()).hexdigest()[:16] == PINNED_DIGITS

    official = load_digits()
    both = torch.cat([train.images, test.images]).flatten(1).double() * 16 / 255
    as_rows = sorted(map(tuple, both.round().int().tolist()))
    assert as_rows == sorted(map(tuple, official.data.astype(int).tolist()))
    assert int(train.images.max()) == 255
