"""Downloads from a real server on this machine; no test reaches outside."""

import gzip
import hashlib
import threading
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from official_files import idx_bytes, random_images

from pclc.data import load_dataset
from pclc.data.description import Download
from pclc.data.fetch import fetch_dataset, fetch_files
from pclc.data.registry import describe

NOBODY = "http://127.0.0.1:9"  # the discard port, where nothing listens


class Handler(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        self.server.requests.append(self.path)


@pytest.fixture
def server(tmp_path):
    folder = tmp_path / "server"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), lambda *arguments: Handler(*arguments, directory=str(folder))) as http:
        http.requests, http.folder = [], folder
        http.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.02,))
        thread.start()
        yield http
        http.shutdown()
        thread.join()


FILES = {
    "train-images-idx3-ubyte.gz": gzip.compress(idx_bytes(random_images(3, 28, 28))),
    "train-labels-idx1-ubyte.gz": gzip.compress(idx_bytes(np.array([1, 2, 3], np.uint8))),
}


def mnist_from(*servers, files=FILES):
    """MNIST with small files, to be had from ``servers``."""
    downloads = tuple(
        Download(f"MNIST/raw/{name}", hashlib.md5(content).hexdigest(), tuple(f"{server}/{name}" for server in servers))
        for name, content in files.items()
    )
    return replace(describe("mnist"), downloads=downloads)


def publish(server, files=FILES, folder=""):
    (server.folder / folder).mkdir(exist_ok=True)
    for name, content in files.items():
        (server.folder / folder / name).write_bytes(content)
    return f"{server.url}/{folder}".rstrip("/")


def all_files(folder):
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def test_files_arrive_where_they_are_looked_for(server, tmp_path):
    root = tmp_path / "root"
    paths = fetch_files(mnist_from(publish(server)), root)
    assert [path.read_bytes() for path in paths] == list(FILES.values())
    assert load_dataset("mnist", root=root).labels.tolist() == [1, 2, 3]


def test_what_is_there_is_not_fetched_again(server, tmp_path):
    description = mnist_from(publish(server))
    fetch_files(description, tmp_path / "root")
    server.requests.clear()
    fetch_files(description, tmp_path / "root")
    assert server.requests == []


def test_a_damaged_file_is_replaced(server, tmp_path):
    description = mnist_from(publish(server))
    path, _ = fetch_files(description, tmp_path / "root")
    path.write_bytes(b"damaged")
    fetch_files(description, tmp_path / "root")
    assert path.read_bytes() == FILES[path.name]


@pytest.mark.parametrize("first", ["nobody", "not found", "other content"])
def test_the_mirror_is_used_where_the_first_address_fails(server, tmp_path, first):
    mirror = publish(server)
    other = publish(server, dict.fromkeys(FILES, b"<html>Gone</html>"), folder="other")
    address = {"nobody": NOBODY, "not found": f"{server.url}/nothing", "other content": other}[first]
    root = tmp_path / "root"
    fetch_files(mnist_from(address, mirror), root)
    assert load_dataset("mnist", root=root).labels.tolist() == [1, 2, 3]
    assert all_files(root) == sorted(FILES)


def test_without_network_the_sentence_says_which_files_belong_where(tmp_path):
    root = tmp_path / "root"
    with pytest.raises(FileNotFoundError) as caught:
        fetch_files(mnist_from(NOBODY, NOBODY), root)
    sentence = str(caught.value)
    assert "train-images-idx3-ubyte.gz could not be downloaded (http://127.0.0.1:9/" in sentence
    assert sentence.count("no connection") == 2
    assert f"put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz into {root}/MNIST/raw" in sentence
    assert f"`pclc data check mnist --root {root}`" in sentence
    assert all_files(root) == []


def test_a_folder_that_cannot_be_made_is_no_lack_of_network(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(NotADirectoryError):
        fetch_files(mnist_from(NOBODY), tmp_path / "file")


@pytest.mark.parametrize("kept", [b"", FILES["train-images-idx3-ubyte.gz"][:-1]])
def test_a_wrong_checksum_leaves_nothing(server, tmp_path, kept):
    address = publish(server, dict.fromkeys(FILES, kept))
    with pytest.raises(FileNotFoundError, match="does not match the known hash"):
        fetch_files(mnist_from(address), tmp_path / "root")
    assert all_files(tmp_path / "root") == []


def test_a_connection_that_breaks_leaves_nothing(server, tmp_path, monkeypatch):
    address = publish(server)
    monkeypatch.setattr(Handler, "copyfile", lambda self, source, output: output.write(source.read()[:100]))
    with pytest.raises(FileNotFoundError, match="could not be downloaded"):
        fetch_files(mnist_from(address), tmp_path / "root")
    assert all_files(tmp_path / "root") == []


def test_without_pooch_there_is_a_sentence(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pooch", None)
    with pytest.raises(ModuleNotFoundError, match=r"Downloading needs pooch: pip install 'pclc\[data\]'"):
        fetch_files(mnist_from(NOBODY), tmp_path)


def test_digits_need_no_download():
    assert fetch_dataset("digits") == []


def test_an_unknown_name_gets_a_sentence():
    with pytest.raises(ValueError, match="one of digits, mnist"):
        fetch_dataset("nope")
