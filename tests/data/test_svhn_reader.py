import numpy as np
import pytest
from official_files import random_images

from pclc.data import load_dataset

IMAGES = random_images(12, 3, 32, 32)
LABELS = np.array([10, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1])


def write_mat(path, **variables):
    from scipy.io import savemat

    path.parent.mkdir(parents=True, exist_ok=True)
    savemat(path, variables, do_compression=True)


def official(images=IMAGES, labels=LABELS):
    return {"X": images.transpose(2, 3, 1, 0), "y": labels.astype(np.uint8)[:, None]}


@pytest.mark.parametrize("folder", ["", "SVHN", "svhn"])
def test_images_are_turned_and_label_10_is_the_digit_0(tmp_path, folder):
    write_mat(tmp_path / folder / "test_32x32.mat", **official())
    test = load_dataset("svhn", "test", tmp_path)
    assert np.array_equal(test.images.numpy(), IMAGES)
    assert test.images.is_contiguous()
    assert test.labels.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1]
    assert test.classes == tuple("0123456789")


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"X": official()["X"]}, "expected the variables X and y"),
        (official(labels=LABELS + 1), "expected labels between 1 and 10"),
        (official(labels=LABELS - 1), "expected labels between 1 and 10"),
        (official(labels=LABELS[:5]), "12 images and 5 labels"),
        (official(images=IMAGES[:, :, :16]), "expected images of 3 x 32 x 32, but got 3 x 16 x 32"),
        ({**official(), "X": official()["X"].astype(float)}, "expected X to be uint8 .* but got float64"),
        ({**official(), "y": np.array([["a"]])}, "expected labels between 1 and 10"),
    ],
)
def test_wrong_files_get_a_sentence(tmp_path, variables, sentence):
    write_mat(tmp_path / "train_32x32.mat", **variables)
    with pytest.raises(ValueError, match=sentence):
        load_dataset("svhn", root=tmp_path)


@pytest.mark.parametrize(
    "change", [lambda content: content[:-500], lambda content: content[:100], lambda content: b"x" * 999]
)
def test_damaged_files_get_a_sentence(tmp_path, change):
    path = tmp_path / "train_32x32.mat"
    write_mat(path, **official())
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(ValueError, match=r"train_32x32.mat is truncated or not a MATLAB file"):
        load_dataset("svhn", root=tmp_path)
