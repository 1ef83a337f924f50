import io
import tarfile

import numpy as np
import pytest
from official_files import cifar10_files, python2_batch_bytes, python_batch_bytes, random_images, write_files

from pclc.data import load_dataset

IMAGES = random_images(10, 3, 32, 32)
LABELS = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3]
FINE = [99, 0, 12, 47, 5, 62, 33, 21, 8, 70]


def write_tar(path, files):
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def cifar100_files():
    rows = [bytes([i % 20, fine]) + image.tobytes() for i, (image, fine) in enumerate(zip(IMAGES, FINE, strict=True))]
    return {"train.bin": b"".join(rows), "test.bin": b"".join(rows[:3])}


def python_batches(make=python_batch_bytes):
    batches = {f"data_batch_{i + 1}": make(IMAGES[2 * i : 2 * i + 2], LABELS[2 * i : 2 * i + 2]) for i in range(5)}
    return batches | {"test_batch": make(IMAGES[:2], LABELS[:2])}


def in_folder(folder, files):
    return {f"{folder}/{name}": content for name, content in files.items()}


def assert_cifar10(root):
    train, test = load_dataset("cifar10", root=root), load_dataset("cifar10", "test", root)
    assert np.array_equal(train.images.numpy(), IMAGES)
    assert train.labels.tolist() == LABELS
    assert np.array_equal(test.images.numpy(), IMAGES[:2])
    assert train.classes[0] == "airplane"


def test_cifar10_binary(tmp_path):
    write_files(tmp_path / "cifar-10-batches-bin", cifar10_files(IMAGES, LABELS))
    assert_cifar10(tmp_path)


@pytest.mark.parametrize("protocol", range(6))
def test_cifar10_python(tmp_path, protocol):
    batches = python_batches(lambda images, labels: python_batch_bytes(images, labels, protocol=protocol))
    write_files(tmp_path / "cifar-10-batches-py", batches)
    assert_cifar10(tmp_path)


def test_cifar10_python_as_python_2_wrote_it(tmp_path):
    write_files(tmp_path / "cifar-10-batches-py", python_batches(python2_batch_bytes))
    assert_cifar10(tmp_path)


def test_archives_are_read_without_being_unpacked(tmp_path):
    write_tar(tmp_path / "cifar-10-binary.tar.gz", in_folder("cifar-10-batches-bin", cifar10_files(IMAGES, LABELS)))
    assert_cifar10(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["cifar-10-binary.tar.gz"]


def test_archives_of_the_python_version_are_read_too(tmp_path):
    write_tar(tmp_path / "cifar-10-python.tar.gz", in_folder("cifar-10-batches-py", python_batches()))
    assert_cifar10(tmp_path)


def test_an_archive_writes_nothing_outside_its_folder(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    files = {"../escaped": b"x", f"{tmp_path}/absolute": b"x"}
    files |= in_folder("cifar-10-batches-bin", cifar10_files(IMAGES, LABELS))
    write_tar(root / "cifar-10-binary.tar.gz", files)
    assert_cifar10(root)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["cifar-10-binary.tar.gz"]


def test_a_link_in_an_archive_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(3073))
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as tar:
        member = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        member.type, member.linkname = tarfile.SYMTYPE, str(secret)
        tar.addfile(member)
    with pytest.raises(ValueError, match=r"lacks cifar-10-batches-bin/test_batch.bin"):
        load_dataset("cifar10", "test", tmp_path)


def test_cifar100_has_its_fine_labels_in_both_versions(tmp_path):
    write_files(tmp_path / "a" / "cifar-100-binary", cifar100_files())
    python = {"train": python_batch_bytes(IMAGES, FINE, b"fine_labels")}
    write_files(tmp_path / "b" / "cifar-100-python", python)
    for root in (tmp_path / "a", tmp_path / "b"):
        train = load_dataset("cifar100", root=root)
        assert train.labels.tolist() == FINE
        assert np.array_equal(train.images.numpy(), IMAGES)
        assert len(train.classes) == len(set(train.classes)) == 100
        assert (train.classes[0], train.classes[39], train.classes[99]) == ("apple", "keyboard", "worm")


def test_a_truncated_batch_gets_a_sentence(tmp_path):
    files = cifar10_files(IMAGES, LABELS)
    files["data_batch_3.bin"] = files["data_batch_3.bin"][:-1]
    write_files(tmp_path / "cifar-10-batches-bin", files)
    with pytest.raises(ValueError, match=r"data_batch_3.bin is truncated: expected rows of 3073 bytes, but got 6145"):
        load_dataset("cifar10", root=tmp_path)


def test_a_label_out_of_range_gets_a_sentence(tmp_path):
    write_files(tmp_path / "cifar-10-batches-bin", cifar10_files(IMAGES, [10] * 10))
    with pytest.raises(ValueError, match="expected labels between 0 and 9, but got 10"):
        load_dataset("cifar10", root=tmp_path)


def test_a_truncated_archive_gets_a_sentence(tmp_path):
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_tar(path, in_folder("cifar-10-batches-bin", cifar10_files(IMAGES, LABELS)))
    path.write_bytes(path.read_bytes()[:-3000])
    with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz is truncated or damaged"):
        load_dataset("cifar10", "test", tmp_path)


@pytest.mark.parametrize("place", [0.2, 0.5, 0.8])
def test_an_archive_with_another_byte_in_it_gets_a_sentence(tmp_path, place):
    """Random pixels are not compressed: the byte is a pixel, and only the checksum at the end of the file tells."""
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_tar(path, in_folder("cifar-10-batches-bin", cifar10_files(IMAGES, LABELS)))
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"cifar-10-binary.tar.gz is truncated or damaged"):
        load_dataset("cifar10", root=tmp_path)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (python_batch_bytes(IMAGES, LABELS)[:-100], "truncated or not a pickle"),
        (python_batch_bytes(IMAGES, LABELS, b"coarse"), "expected the keys data and labels, but got coarse, data"),
        (python_batch_bytes(IMAGES[:, :, :16], LABELS), r"expected rows of 3072 pixels .* but got \(10, 1536\)"),
        (python_batch_bytes(IMAGES.astype(np.float32), LABELS), "expected data to be an array of uint8"),
        (python_batch_bytes(IMAGES, LABELS[:-1]), "10 images and 9 labels"),
        (python_batch_bytes(IMAGES, ["a"] * 10), "expected labels to be a list of whole numbers"),
        (python_batch_bytes(IMAGES, [-1] * 10), "expected labels between 0 and 9, but got -1"),
    ],
)
def test_python_batches_that_are_wrong_get_a_sentence(tmp_path, content, sentence):
    write_files(tmp_path / "cifar-10-batches-py", {"test_batch": content})
    with pytest.raises(ValueError, match=sentence):
        load_dataset("cifar10", "test", tmp_path)
