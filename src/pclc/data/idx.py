"""The IDX format of MNIST and its relatives, plain or gzipped."""

import gzip
import zlib
from pathlib import Path
from typing import IO, cast

import numpy as np
import numpy.typing as npt

from pclc.data.description import Arrays

_GZIP = b"\x1f\x8b"


def _open(path: Path) -> IO[bytes]:
    """Open by content, not by name: people keep plain files under the gzipped name, and vice versa."""
    with path.open("rb") as file:
        start = file.read(2)
    return cast(IO[bytes], gzip.open(path)) if start == _GZIP else path.open("rb")


def read_idx(path: Path, ndim: int) -> npt.NDArray[np.uint8]:
    """Read an array of bytes in ``ndim`` dimensions.

    The format is a big-endian magic number (two zero bytes, 8 for unsigned bytes, the number of dimensions), one
    32-bit size for each dimension, then the bytes.
    """
    expected = 0x0800 + ndim
    try:
        with _open(path) as stream:
            magic = int.from_bytes(stream.read(4), "big")
            if magic != expected:
                raise ValueError(
                    f"{path}: expected magic number {expected} (unsigned bytes in {ndim} dimensions), but got {magic}."
                )
            header = stream.read(4 * ndim)
            if len(header) < 4 * ndim:
                raise ValueError(f"{path} is truncated: it ends inside its header.")
            shape = tuple(int(size) for size in np.frombuffer(header, ">u4"))
            size = int(np.prod(shape, dtype=object))
            content = bytearray()
            # In pieces: a header with a wrong size must not make Python allocate it.
            while len(content) <= size and (piece := stream.read(1 << 20)):
                content += piece
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(f"{path} is truncated or damaged: {error}.") from error
    sizes = " x ".join(str(size) for size in shape)
    if len(content) < size:
        raise ValueError(f"{path} is truncated: expected {sizes} = {size} bytes after its header, got {len(content)}.")
    if len(content) > size:
        raise ValueError(f"{path} is too long: expected {sizes} = {size} bytes after the header, but there are more.")
    return np.frombuffer(content, np.uint8).reshape(shape)


def read_idx_pair(paths: tuple[Path, ...], split: str) -> Arrays:
    """Read a file of images and its file of labels; their names have already told the split."""
    images, labels = paths
    return Arrays(read_idx(images, ndim=3)[:, None], read_idx(labels, ndim=1).astype(np.int64))
