import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from official_files import WNIDS, jpeg_bytes, tiny_imagenet_files, write_tiny_folder, write_tiny_zip

from pclc.data import load_dataset, tiny_imagenet

FILES = tiny_imagenet_files()
WRITERS = pytest.mark.parametrize("write", [write_tiny_folder, write_tiny_zip])


def caches(root):
    return sorted(root.glob("pclc-cache/*"))


def load(root, split="train"):
    return load_dataset("tiny-imagenet", split, root)


@WRITERS
def test_both_splits_come_back(tmp_path, write):
    write(tmp_path, FILES)
    train, test = load(tmp_path), load(tmp_path, "test")
    assert train.images.shape == (200, 3, 64, 64)
    assert train.labels.tolist() == list(range(200))
    assert train.classes == tuple(WNIDS)
    # Each image has one colour: its label in red, the rest of it in green, give or take what JPEG loses.
    for dataset in (train, test):
        for image, label in zip(dataset.images, dataset.labels.tolist(), strict=True):
            if label != 7:
                assert (image[:2].float().mean((1, 2)) - torch.tensor([label, 255 - label])).abs().max() < 3
    assert test.labels.tolist() == [3, 53, 103, 153]


def test_grey_images_become_rgb(tmp_path):
    write_tiny_folder(tmp_path, FILES)
    grey = load(tmp_path).images[7]
    assert torch.equal(grey[0], grey[1])
    assert torch.equal(grey[0], grey[2])
    assert int(grey[0, 0, 0]) == 7


@WRITERS
def test_the_second_time_nothing_is_decoded(tmp_path, write, monkeypatch):
    write(tmp_path, FILES)
    first = load(tmp_path)
    monkeypatch.setattr(tiny_imagenet, "_decode", None)
    second = load(tmp_path)
    assert torch.equal(first.images, second.images)
    assert torch.equal(first.labels, second.labels)


def test_the_cache_is_mapped_and_can_be_written_to_without_changing_it(tmp_path, recwarn):
    write_tiny_zip(tmp_path, FILES)
    images = load(tmp_path, "test").images
    (cache,) = caches(tmp_path)
    before = cache.read_bytes()
    maps = Path("/proc/self/maps")
    assert not maps.exists() or cache.name in maps.read_text()
    images.zero_()
    assert cache.read_bytes() == before
    assert not [warning for warning in recwarn if "writable" in str(warning.message)]


@WRITERS
def test_a_changed_source_is_decoded_again(tmp_path, write):
    write(tmp_path, FILES)
    load(tmp_path, "test")
    write(tmp_path, FILES | {"val/images/val_0.JPEG": jpeg_bytes(200)})
    assert abs(int(load(tmp_path, "test").images[0, 0, 0, 0]) - 200) < 3


def test_a_damaged_cache_is_decoded_again(tmp_path):
    write_tiny_zip(tmp_path, FILES)
    good = load(tmp_path, "test").images.clone()
    (cache,) = caches(tmp_path)
    for content in (cache.read_bytes()[:-1], b"", b"\x93NUMPY junk"):
        cache.unlink()  # the old one may still be mapped
        cache.write_bytes(content)
        assert torch.equal(load(tmp_path, "test").images, good)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_interruption_leaves_no_cache(tmp_path, monkeypatch, error):
    write_tiny_zip(tmp_path, FILES)
    decode = tiny_imagenet._decode

    def interrupted(content, name):
        if name.endswith("val_2.JPEG"):
            raise error
        return decode(content, name)

    with monkeypatch.context() as patch:
        patch.setattr(tiny_imagenet, "_decode", interrupted)
        with pytest.raises(error):
            load(tmp_path, "test")
    assert caches(tmp_path) == []
    assert len(load(tmp_path, "test")) == 4


def test_a_full_disk_gets_a_sentence_before_anything_is_decoded(tmp_path, monkeypatch):
    write_tiny_zip(tmp_path, FILES)
    monkeypatch.setattr(tiny_imagenet.shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))
    with pytest.raises(ValueError, match="has 1000 bytes free, but the decoded images take 49152"):
        load(tmp_path, "test")
    assert caches(tmp_path) == []


def test_a_folder_that_cannot_be_written_to_leaves_the_cache_to_the_users_own(tmp_path, monkeypatch):
    source, own = tmp_path / "source", tmp_path / "own"
    write_tiny_zip(source, FILES)
    own.mkdir()
    monkeypatch.setenv("PCLC_DATA", str(own))
    monkeypatch.setattr(tiny_imagenet.os, "access", lambda path, mode: False)
    load(source, "test")
    assert caches(source) == []
    assert len(caches(own)) == 1


def test_a_zip_writes_nothing_outside_the_cache(tmp_path):
    root = tmp_path / "root"
    write_tiny_zip(root, FILES)
    with zipfile.ZipFile(root / "tiny-imagenet-200.zip", "a") as archive:
        archive.writestr("../escaped.JPEG", b"x")
        archive.writestr("tiny-imagenet-200/val/../../../escaped.JPEG", b"x")
    load(root, "test")
    files = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert files == {"tiny-imagenet-200.zip", caches(root)[0].name}


# Its header says 20,000 x 20,000 instead of 64 x 64.
OF_20000_ROWS = jpeg_bytes(1).replace(bytes([0, 64, 0, 64]), bytes([78, 32, 78, 32]), 1)


def without(name):
    return {key: content for key, content in FILES.items() if key != name}


@WRITERS
@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        (FILES | {"val/images/val_1.JPEG": b"junk"}, r"val_1.JPEG is not a readable JPEG"),
        (FILES | {"val/images/val_1.JPEG": jpeg_bytes(1)[:-200]}, r"val_1.JPEG is not a readable JPEG"),
        (FILES | {"val/images/val_1.JPEG": OF_20000_ROWS}, r"val_1.JPEG is not a readable JPEG: .* exceeds limit"),
        (FILES | {"val/images/val_1.JPEG": jpeg_bytes(1, (64, 32))}, "expected an image of 64 x 64, but got 64 x 32"),
        (without("val/images/val_1.JPEG"), r"line 2: there is no image val/images/val_1.JPEG"),
        (
            FILES | {"val/val_annotations.txt": b"val_0.JPEG"},
            "line 1: expected a file and a wnid, but got 'val_0.JPEG'",
        ),
        (FILES | {"val/val_annotations.txt": b"../../wnids.txt\tn0"}, "there is no image"),
        (
            FILES | {"val/val_annotations.txt": b"val_0.JPEG\tn9"},
            r"'n9' is the class of an image, but is not in wnids.txt",
        ),
        (FILES | {"val/val_annotations.txt": b""}, "has no images for the test split"),
        (FILES | {"wnids.txt": b"n1 n2"}, r"expected 200 classes in wnids.txt, but got 2"),
        (without("val/val_annotations.txt"), r"lacks (tiny-imagenet-200/)?val/val_annotations.txt"),
    ],
)
def test_wrong_sources_get_a_sentence_and_leave_no_cache(tmp_path, write, files, sentence):
    write(tmp_path, files)
    with pytest.raises((ValueError, FileNotFoundError), match=sentence):
        load(tmp_path, "test")
    assert caches(tmp_path) == []


@pytest.mark.parametrize("left", [slice(None, -1000), slice(100_000, None)], ids=["end", "beginning"])
def test_a_zip_of_which_a_part_is_lacking_gets_a_sentence(left, tmp_path):
    write_tiny_zip(tmp_path, FILES)
    path = tmp_path / "tiny-imagenet-200.zip"
    path.write_bytes(path.read_bytes()[left])
    with pytest.raises(ValueError, match=r"tiny-imagenet-200.zip is (truncated or not a zip|damaged at)"):
        load(tmp_path)


def test_a_zip_that_may_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    write_tiny_zip(tmp_path, FILES)

    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied", "tiny-imagenet-200.zip")

    monkeypatch.setattr("io.open", refuse)  # what the tests' user may read says nothing: it may be root
    with pytest.raises(PermissionError):
        load(tmp_path)


def test_a_zip_that_is_damaged_inside_gets_a_sentence(tmp_path):
    write_tiny_zip(tmp_path, FILES)
    path = tmp_path / "tiny-imagenet-200.zip"
    content = FILES["val/images/val_1.JPEG"]
    path.write_bytes(path.read_bytes().replace(content, np.random.default_rng(0).bytes(len(content))))
    with pytest.raises(ValueError, match=r"tiny-imagenet-200.zip is damaged at val/images/val_1.JPEG"):
        load(tmp_path, "test")
    assert caches(tmp_path) == []
