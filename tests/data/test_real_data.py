"""The official files, where somebody has them."""

import pytest
import torch

from pclc.data import load_dataset
from pclc.data.check import check_dataset
from pclc.data.registry import describe

pytestmark = pytest.mark.real_data


@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10"])
def test_checksums_and_counts(name):
    check = check_dataset(name)
    assert check.problems == ()
    assert check.verified == check.files


@pytest.mark.parametrize("name", ["kmnist", "cifar100", "svhn", "tiny-imagenet"])
def test_the_others_where_they_are_there(name):
    check = check_dataset(name)
    if check.missing:
        pytest.skip(f"{name} is not under PCLC_DATA")
    assert check.problems == ()


@pytest.mark.parametrize(
    ("name", "first_labels", "mean"),
    [
        ("mnist", [5, 0, 4, 1, 9], 0.1307),
        ("fashion-mnist", [9, 0, 0, 3, 0], 0.2860),
        ("cifar10", [6, 9, 9, 4, 1], 0.4734),
    ],
)
def test_labels_and_pixels_are_those_everybody_knows(name, first_labels, mean):
    train = load_dataset(name)
    assert train.labels[:5].tolist() == first_labels
    assert train.images.shape[1:] == describe(name).shape
    assert train.images.float().mean().item() / 255 == pytest.approx(mean, abs=1e-3)
    counts = torch.bincount(train.labels)
    assert len(counts) == 10
    if name != "mnist":
        assert counts.unique().numel() == 1
