import subprocess
import sys

import pytest
import torch
from official_files import cifar10_files, random_images, write_files, write_idx

from pclc.data import dataset_names, load_dataset
from pclc.data.registry import describe
from pclc.data.root import data_root

IMAGES = random_images(5, 28, 28)
LABELS = [0, 1, 2, 3, 9]


def test_the_names():
    assert dataset_names() == (
        "digits",
        "mnist",
        "kmnist",
        "fashion-mnist",
        "cifar10",
        "cifar100",
        "svhn",
        "tiny-imagenet",
    )


@pytest.mark.parametrize("name", dataset_names())
def test_descriptions_are_complete(name):
    description = describe(name)
    assert description.num_classes == len(description.classes) or (name == "tiny-imagenet" and not description.classes)
    for download in description.downloads:
        assert len(download.md5) == 32
        assert download.urls
        assert any(download.md5 == layout.md5.get(download.path) for layout in description.layouts)


def test_an_unknown_name_gets_a_sentence_with_the_choices():
    with pytest.raises(
        ValueError,
        match=r"data set to be one of digits, .*, but got 'imagenet'\. Did you mean 'tiny-imagenet'\? For your own",
    ):
        load_dataset("imagenet")


def test_an_unknown_split_gets_a_sentence():
    with pytest.raises(ValueError, match=r"'train' or 'test', but got 'val'; .*split_validation"):
        load_dataset("digits", "val")


def test_missing_files_are_named_with_their_folder_and_the_command(tmp_path):
    with pytest.raises(FileNotFoundError) as caught:
        load_dataset("mnist", root=tmp_path)
    sentence = str(caught.value)
    assert f"mnist: the train split is not in {tmp_path}." in sentence
    assert "MNIST/raw/train-images-idx3-ubyte or MNIST/raw/train-images-idx3-ubyte.gz" in sentence
    assert "`pclc data fetch mnist`, give another folder with --root or PCLC_DATA, or put there MNIST/" in sentence


@pytest.mark.parametrize("name", [name for name in dataset_names() if name != "digits"])
@pytest.mark.parametrize("split", ["train", "test"])
def test_every_data_set_says_what_is_missing(tmp_path, name, split):
    with pytest.raises(FileNotFoundError, match=f"the {split} split is not in .*pclc data fetch {name}"):
        load_dataset(name, split, tmp_path)


def test_a_data_set_there_in_part_says_what_is_lacking(tmp_path):
    files = cifar10_files(random_images(5, 3, 32, 32), LABELS)
    del files["data_batch_4.bin"]
    write_files(tmp_path / "cifar-10-batches-bin", files)
    with pytest.raises(FileNotFoundError, match=r"incomplete; missing: cifar-10-batches-bin/data_batch_4.bin"):
        load_dataset("cifar10", root=tmp_path)


def test_a_copy_that_is_not_complete_is_said(tmp_path):
    """A folder that was unpacked in part trains a model on what happens to be there."""
    write_idx(tmp_path, IMAGES, LABELS)
    with pytest.warns(UserWarning, match=r"ubyte.gz: expected the 60000 images of the train split of mnist, but got 5"):
        load_dataset("mnist", root=tmp_path)


@pytest.mark.parametrize(
    ("images", "labels", "sentence"),
    [
        (IMAGES, LABELS[:4], "one label for each image, but got 5 images and 4 labels"),
        (random_images(5, 32, 32), LABELS, "expected images of 1 x 28 x 28, but got 1 x 32 x 32"),
        (IMAGES, [0, 1, 2, 3, 10], "expected labels between 0 and 9, but got 10"),
        (IMAGES[:0], [], "expected at least one image, but got none"),
    ],
)
def test_contents_that_do_not_fit_get_a_sentence(tmp_path, images, labels, sentence):
    write_idx(tmp_path, images, labels)
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz: .*" + sentence):
        load_dataset("mnist", root=tmp_path)


def test_the_root_is_the_argument_then_the_environment_then_the_cache(tmp_path, monkeypatch):
    import platformdirs

    monkeypatch.setenv("PCLC_DATA", str(tmp_path / "environment"))
    assert data_root(tmp_path / "argument") == tmp_path / "argument"
    assert data_root() == tmp_path / "environment"
    monkeypatch.delenv("PCLC_DATA")
    monkeypatch.setattr(platformdirs, "user_cache_dir", lambda name: str(tmp_path / name))
    assert data_root() == tmp_path / "pclc" / "data"


def test_the_environment_is_used_to_load(tmp_path, monkeypatch):
    write_idx(tmp_path, IMAGES, LABELS)
    monkeypatch.setenv("PCLC_DATA", str(tmp_path))
    assert torch.equal(load_dataset("mnist").labels, torch.tensor(LABELS))


def test_without_platformdirs_there_is_a_sentence(monkeypatch):
    monkeypatch.delenv("PCLC_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "platformdirs", None)
    with pytest.raises(ValueError, match=r"No data folder is known: .*PCLC_DATA.*pip install 'pclc\[data\]'"):
        data_root()
    assert len(load_dataset("digits")) == 1437  # which needs no folder


def test_a_missing_library_gets_a_sentence(tmp_path, monkeypatch):
    (tmp_path / "train_32x32.mat").write_bytes(b"x")
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ModuleNotFoundError, match=r"Reading SVHN needs scipy.io: pip install 'pclc\[data\]'"):
        load_dataset("svhn", root=tmp_path)


def test_importing_needs_torch_and_numpy_only():
    heavy = ["scipy", "sklearn", "PIL", "pooch", "rich", "platformdirs", "requests"]
    code = f"import sys; before = set(sys.modules); import torch; torches = set(sys.modules); import pclc.data; \
print([m for m in {heavy} if m in sys.modules and m not in torches])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
