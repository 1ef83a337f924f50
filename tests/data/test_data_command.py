import hashlib
import json
from dataclasses import replace

import pytest
from official_files import random_images, write_idx
from typer.testing import CliRunner

from pclc.cli.app import app, main
from pclc.data import registry
from pclc.data.check import check_dataset

LABELS = [0, 1, 2, 3, 9]


def pclc(*arguments):
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


@pytest.fixture
def small_mnist(tmp_path, monkeypatch):
    """Small files for which the registry has the checksums and counts."""
    for prefix in ("train", "t10k"):
        raw = write_idx(tmp_path, random_images(5, 28, 28), LABELS, prefix=prefix)
    mnist = registry.describe("mnist")
    md5 = {f"MNIST/raw/{path.name}": hashlib.md5(path.read_bytes()).hexdigest() for path in raw.iterdir()}
    layout = replace(mnist.layouts[0], md5=md5)
    small = replace(mnist, layouts=(layout,), counts={"train": 5, "test": 5})
    monkeypatch.setitem(registry._DESCRIPTIONS, "mnist", small)
    return tmp_path


def test_list_shows_what_is_where(small_mnist):
    result = pclc("list", "--json", "--root", small_mnist)
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert rows["mnist"] == {
        "name": "mnist",
        "train": 5,
        "test": 5,
        "classes": 10,
        "size": [1, 28, 28],
        "where": str(small_mnist / "MNIST" / "raw"),
    }
    assert rows["digits"]["where"] == "comes with scikit-learn"
    assert rows["cifar10"]["where"] == "missing"


def test_list_is_a_table(small_mnist):
    result = pclc("list", "--root", small_mnist)
    assert result.exit_code == 0
    for text in ("mnist", "50000", "3 x 32 x 32", "missing", "tiny-imagenet"):
        assert text in result.stdout


def test_list_says_where_only_one_split_is_there(tmp_path):
    (tmp_path / "test_32x32.mat").write_bytes(b"")
    rows = json.loads(pclc("list", "--json", "--root", tmp_path).stdout)
    assert [row["where"] for row in rows if row["name"] == "svhn"] == [f"{tmp_path / 'test_32x32.mat'} (test only)"]


def test_check_is_content_with_official_files(small_mnist):
    result = pclc("check", "--root", small_mnist)
    assert result.exit_code == 0, result.stdout
    assert "mnist: good, 4 of 4 files verified by checksum" in result.stdout
    assert "cifar10: missing" in result.stdout
    assert "digits: good" in result.stdout


def test_check_finds_a_wrong_checksum(small_mnist):
    write_idx(small_mnist, random_images(5, 28, 28, seed=1), LABELS)
    result = pclc("check", "mnist", "--root", small_mnist)
    assert result.exit_code == 1
    assert "train-images-idx3-ubyte.gz: expected the md5 checksum" in result.stdout
    assert pclc("check", "--root", small_mnist).exit_code == 1


def test_check_finds_a_wrong_count(tmp_path):
    for prefix in ("train", "t10k"):
        write_idx(tmp_path, random_images(5, 28, 28), LABELS, "KMNIST", prefix, zipped=False)
    check = check_dataset("kmnist", tmp_path)
    assert check.verified == ()
    assert check.problems == (
        "kmnist: expected 60000 images in the train split, but got 5.",
        "kmnist: expected 10000 images in the test split, but got 5.",
    )


def test_check_finds_what_cannot_be_read_and_goes_on(small_mnist):
    path = small_mnist / "MNIST" / "raw" / "train-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-10])
    result = pclc("check", "mnist", "--json", "--root", small_mnist)
    (row,) = json.loads(result.stdout)
    assert result.exit_code == 1
    assert len(row["verified"]) == 3
    assert not row["missing"]
    assert "md5" in row["problems"][0]
    assert "truncated" in row["problems"][1]


def test_a_data_set_that_is_missing_is_wrong_only_when_named(tmp_path):
    assert pclc("check", "--root", tmp_path).exit_code == 0
    result = pclc("check", "svhn", "--root", tmp_path)
    assert result.exit_code == 1
    assert "pclc data fetch svhn" in result.stdout


def test_a_data_set_that_is_half_there_is_wrong(small_mnist):
    for path in (small_mnist / "MNIST" / "raw").glob("t10k-*"):
        path.unlink()
    assert pclc("check", "--root", small_mnist).exit_code == 1


def test_fetch_of_what_comes_with_a_library():
    assert "digits: comes with scikit-learn, nothing to download" in pclc("fetch", "digits").stdout


def test_an_unknown_name_ends_in_a_sentence(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["pclc", "data", "fetch", "digits", "nope"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert "one of digits, mnist" in output.err


@pytest.mark.parametrize("command", [["list"], ["fetch"], ["check"]])
def test_help_teaches_with_examples(command):
    result = pclc(*command, "--help")
    assert "Examples" in result.stdout
    assert f"pclc data {command[0]}" in result.stdout
