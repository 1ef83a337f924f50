import pytest
import torch

from pclc.data import Dataset

IMAGES = torch.zeros(4, 1, 2, 2, dtype=torch.uint8)
LABELS = torch.tensor([0, 1, 1, 0])


def make(images=IMAGES, labels=LABELS):
    return Dataset(images, labels, ("a", "b"), "toy", "train")


def test_subset_keeps_the_order_asked_for():
    dataset = make(images=torch.arange(4, dtype=torch.uint8).reshape(4, 1, 1, 1))
    subset = dataset.subset([3, 1])
    assert subset.images.flatten().tolist() == [3, 1]
    assert subset.labels.tolist() == [0, 1]
    assert (subset.name, subset.split, subset.classes, len(subset)) == ("toy", "train", ("a", "b"), 2)


def test_a_long_tensor_is_a_list_of_indices_too():
    assert len(make().subset(torch.tensor([0, 2, 3]))) == 3


def test_repr_is_one_line():
    assert repr(make()) == "Dataset(toy, train: 4 images of 1 x 2 x 2, 2 classes)"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"images": IMAGES.float()}, r"`images` to be uint8 of shape \(N, C, H, W\), but got torch.float32"),
        ({"images": IMAGES[:, 0]}, r"`images`.* of shape \(4, 2, 2\)"),
        ({"images": IMAGES.new_zeros(4, 8, 8, 3)}, r"\(4, 8, 8, 3\), which looks like \(N, H, W, C\)"),
        ({"images": IMAGES.new_zeros(4, 28, 28, 1)}, r"use images.permute\(0, 3, 1, 2\)"),
        ({"labels": LABELS.int()}, r"`labels` to be int64 of shape \(N,\), but got torch.int32"),
        ({"labels": LABELS[:3]}, "4 images and 3 labels"),
        ({"images": IMAGES[:0], "labels": LABELS[:0]}, "at least one image in 'toy'"),
        ({"labels": LABELS + 1}, "between 0 and 1, but they go from 1 to 2"),
        ({"labels": LABELS - 1}, "between 0 and 1, but they go from -1 to 0"),
    ],
)
def test_wrong_arguments_get_a_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        make(**arguments)


@pytest.mark.parametrize("classes", [2, "ab"])
def test_classes_that_are_no_names_get_a_sentence(classes):
    with pytest.raises(TypeError, match=r"`classes` to be a tuple of names, but got "):
        Dataset(IMAGES, LABELS, classes, "toy", "train")


@pytest.mark.parametrize(
    ("indices", "sentence"),
    [
        ([], "at least one example"),
        ([4], "between 0 and 3, but they go from 4 to 4"),
        ([-1], "between 0 and 3"),
        ([0.5], "whole numbers"),
        ([True, False, True, False], "whole numbers"),
        ([[0]], "whole numbers"),
    ],
)
def test_wrong_indices_get_a_sentence(indices, sentence):
    with pytest.raises(ValueError, match=sentence):
        make().subset(indices)
