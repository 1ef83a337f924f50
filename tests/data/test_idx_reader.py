import gzip

import numpy as np
import pytest
import torch
from official_files import idx_bytes, random_images, write_idx

from pclc.data import load_dataset
from pclc.data.idx import read_idx

IMAGES = random_images(6, 28, 28)
LABELS = [3, 1, 4, 1, 5, 9]


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize(
    ("name", "folder"), [("mnist", "MNIST"), ("kmnist", "KMNIST"), ("fashion-mnist", "FashionMNIST")]
)
def test_images_and_labels_come_back(tmp_path, name, folder, zipped):
    write_idx(tmp_path, IMAGES, LABELS, folder, zipped=zipped)
    write_idx(tmp_path, IMAGES[:2], LABELS[:2], folder, prefix="t10k", zipped=zipped)
    train, test = load_dataset(name, root=tmp_path), load_dataset(name, "test", tmp_path)
    assert train.images.shape == (6, 1, 28, 28)
    assert np.array_equal(train.images[:, 0].numpy(), IMAGES)
    assert train.labels.tolist() == LABELS
    assert test.labels.tolist() == LABELS[:2]
    assert len(train.classes) == 10


def test_images_can_be_written_to(tmp_path, recwarn):
    write_idx(tmp_path, IMAGES, LABELS)
    load_dataset("mnist", root=tmp_path).images.zero_()
    assert not [warning for warning in recwarn if "writable" in str(warning.message)]


def test_a_plain_file_under_the_name_of_a_gzipped_one_is_read(tmp_path):
    path = tmp_path / "labels.gz"
    path.write_bytes(idx_bytes(np.array(LABELS, np.uint8)))
    assert read_idx(path, ndim=1).tolist() == LABELS


def test_one_file_may_be_gzipped_and_the_other_not(tmp_path):
    raw = write_idx(tmp_path, IMAGES, LABELS)
    zipped = raw / "train-labels-idx1-ubyte.gz"
    (raw / "train-labels-idx1-ubyte").write_bytes(gzip.decompress(zipped.read_bytes()))
    zipped.unlink()
    assert torch.equal(load_dataset("mnist", root=tmp_path).labels, torch.tensor(LABELS))


def damage(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    return path


GOOD = idx_bytes(IMAGES)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (GOOD[:-1], r"truncated: expected 6 x 28 x 28 = 4704 bytes after its header, got 4703"),
        (GOOD[:9], "truncated: it ends inside its header"),
        (b"", "expected magic number 2051 .*, but got 0"),
        (GOOD + b"x", "too long: expected 6 x 28 x 28 = 4704 bytes"),
        (
            idx_bytes(np.zeros(6, np.uint8)),
            r"expected magic number 2051 \(unsigned bytes in 3 dimensions\), but got 2049",
        ),
        (b"<html>Not found</html>", "expected magic number 2051"),
        (gzip.compress(GOOD)[:-20], "truncated or damaged"),
        (gzip.compress(GOOD)[:200] + bytes(50) + gzip.compress(GOOD)[250:], "truncated or damaged"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "truncated: expected 4294967295 x 4294967295 x 4294967295"),
    ],
)
def test_damaged_files_get_a_sentence(tmp_path, content, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_idx(damage(tmp_path, content), ndim=3)
