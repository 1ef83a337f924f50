"""CIFAR-10 and CIFAR-100, in the binary and in the Python version, unpacked or still in their archive."""

import gzip
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from pclc.data.description import Arrays
from pclc.data.unpickle import load_plain_pickle

_PIXELS = 3 * 32 * 32

BatchReader = Callable[[bytes, str], Arrays]
SplitReader = Callable[[tuple[Path, ...], str], Arrays]


def binary_batch(label_bytes: int) -> BatchReader:
    """Return a reader of rows of ``label_bytes`` labels (the last is the fine one) and 3 x 32 x 32 pixels."""

    def read(content: bytes, name: str) -> Arrays:
        row = label_bytes + _PIXELS
        if len(content) == 0 or len(content) % row != 0:
            raise ValueError(f"{name} is truncated: expected rows of {row} bytes, but got {len(content)} bytes in all.")
        rows = np.frombuffer(content, np.uint8).reshape(-1, row)
        return Arrays(rows[:, label_bytes:].reshape(-1, 3, 32, 32), rows[:, label_bytes - 1].astype(np.int64))

    return read


def python_batch(label_key: str) -> BatchReader:
    """Return a reader of pickled dicts with ``data`` (N, 3072) and a list of labels under ``label_key``."""

    def read(content: bytes, name: str) -> Arrays:
        batch = load_plain_pickle(content, name)
        if "data" not in batch or label_key not in batch:
            raise ValueError(f"{name}: expected the keys data and {label_key}, but got {', '.join(sorted(batch))}.")
        images, labels = batch["data"], batch[label_key]
        if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
            raise ValueError(f"{name}: expected data to be an array of uint8.")
        if images.ndim != 2 or images.shape[1] != _PIXELS:
            raise ValueError(f"{name}: expected rows of {_PIXELS} pixels (3 x 32 x 32), but got {images.shape}.")
        if not isinstance(labels, list) or not all(type(label) is int and abs(label) < 2**31 for label in labels):
            raise ValueError(f"{name}: expected {label_key} to be a list of whole numbers.")
        return Arrays(images.reshape(-1, 3, 32, 32), np.array(labels, np.int64))

    return read


def _join(batches: Iterable[tuple[str, bytes]], read: BatchReader) -> Arrays:
    arrays = []
    for name, content in batches:
        batch = read(content, name)
        if len(batch.images) != len(batch.labels):
            raise ValueError(
                f"{name}: expected one label for each image, but got {len(batch.images)} images "
                f"and {len(batch.labels)} labels."
            )
        arrays.append(batch)
    return Arrays(np.concatenate([a.images for a in arrays]), np.concatenate([a.labels for a in arrays]))


def from_files(read: BatchReader) -> SplitReader:
    """Return a reader of unpacked batches."""

    def read_files(paths: tuple[Path, ...], split: str) -> Arrays:
        return _join(((str(path), path.read_bytes()) for path in paths), read)

    return read_files


def _members(archive: Path, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """Yield the named files of an archive in the order asked for, without unpacking anything to disk."""
    contents = {}
    try:
        with gzip.open(archive) as unzipped, tarfile.open(fileobj=unzipped, mode="r:") as tar:
            for member in tar:
                name = member.name.removeprefix("./")
                if name in names and member.isfile() and (file := tar.extractfile(member)) is not None:
                    contents[name] = file.read()
            # To the end, where gzip has its checksum: a damaged byte would be another pixel or label.
            while unzipped.read(1 << 20):
                pass
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{archive} is truncated or damaged: {error}.") from error
    if missing := [name for name in names if name not in contents]:
        raise ValueError(f"{archive} lacks {', '.join(missing)}.")
    return ((f"{archive}/{name}", contents[name]) for name in names)


def from_archive(members: dict[str, tuple[str, ...]], read: BatchReader) -> SplitReader:
    """Return a reader of an archive that was never unpacked; ``members`` names the batches of each split."""

    def read_archive(paths: tuple[Path, ...], split: str) -> Arrays:
        return _join(_members(paths[0], members[split]), read)

    return read_archive
