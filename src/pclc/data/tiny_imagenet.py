"""Tiny ImageNet as the official zip or its unpacked folder, decoded once into a memory-mapped cache."""

import hashlib
import io
import os
import shutil
import zipfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pclc.data.description import Arrays
from pclc.data.progress import progress_bar
from pclc.data.root import data_root
from pclc.extras import needs_extra
from pclc.files import replace_atomically

FOLDER = "tiny-imagenet-200"
_CLASSES = 200
_SHAPE = (3, 64, 64)


class _Folder:
    """The unpacked folder; names are relative to it, with slashes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def fingerprints(self, split: str) -> dict[str, str]:
        """Return for each JPEG of the split a text that changes when its content changes."""
        found = {}
        for folder, _, files in os.walk(self._path / split):
            relative = Path(folder).relative_to(self._path).as_posix()
            for file in files:
                if file.endswith(".JPEG"):
                    status = os.stat(os.path.join(folder, file))
                    found[f"{relative}/{file}"] = f"{status.st_size} {status.st_mtime_ns}"
        return found

    def read(self, name: str) -> bytes:
        try:
            return (self._path / name).read_bytes()
        except FileNotFoundError:
            raise FileNotFoundError(f"{self._path} lacks {name}.") from None


class _Zip:
    """The official zip, with the same methods."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with path.open("rb"):  # a file that cannot be opened is not damaged
            pass
        try:
            self._zip = zipfile.ZipFile(path)
        except Exception as error:  # zipfile fails in many ways at a damaged file
            raise ValueError(f"{path} is truncated or not a zip: {error}.") from error

    def close(self) -> None:
        self._zip.close()

    def fingerprints(self, split: str) -> dict[str, str]:
        start = f"{FOLDER}/{split}/"
        return {
            info.filename.removeprefix(f"{FOLDER}/"): f"{info.file_size} {info.CRC}"
            for info in self._zip.infolist()
            if info.filename.startswith(start) and info.filename.endswith(".JPEG")
        }

    def read(self, name: str) -> bytes:
        try:
            return self._zip.read(f"{FOLDER}/{name}")
        except KeyError:
            raise FileNotFoundError(f"{self._path} lacks {FOLDER}/{name}.") from None
        except Exception as error:
            raise ValueError(f"{self._path} is damaged at {name}: {error}.") from error


_Source = _Folder | _Zip


class _Image(NamedTuple):
    name: str
    wnid: str
    fingerprint: str


def _train_images(source: _Source) -> list[_Image]:
    """Label ``train/<wnid>/images/*.JPEG`` by folder, in the order of their names."""
    return [_Image(name, name.split("/")[1], stamp) for name, stamp in sorted(source.fingerprints("train").items())]


def _val_images(source: _Source) -> list[_Image]:
    """Label ``val/images/*.JPEG`` by ``val/val_annotations.txt`` (name, wnid, box), in its order."""
    annotations = "val/val_annotations.txt"
    stamps = source.fingerprints("val")
    images = []
    for number, line in enumerate(source.read(annotations).decode().splitlines(), start=1):
        fields = line.split("\t")
        if len(fields) < 2:
            raise ValueError(f"{FOLDER}/{annotations}, line {number}: expected a file and a wnid, but got {line!r}.")
        name = f"val/images/{fields[0]}"
        if name not in stamps:
            raise ValueError(f"{FOLDER}/{annotations}, line {number}: there is no image {name}.")
        images.append(_Image(name, fields[1], stamps[name]))
    return images


def _decode(content: bytes, name: str) -> npt.NDArray[np.uint8]:
    """Decode one JPEG to (3, 64, 64); a few of the official ones are grey."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(content), formats=["JPEG"]) as image:
            size = image.size
            pixels = np.asarray(image.convert("RGB")) if size == _SHAPE[1:] else None
    except (OSError, ValueError, Image.DecompressionBombError) as error:
        raise ValueError(f"{FOLDER}/{name} is not a readable JPEG: {error}.") from error
    if pixels is None:
        raise ValueError(f"{FOLDER}/{name}: expected an image of 64 x 64, but got {size[0]} x {size[1]}.")
    return pixels.transpose(2, 0, 1)


def _decode_all(source: _Source, images: list[_Image], cache: Path) -> None:
    with needs_extra("data", "Reading Tiny ImageNet"):
        import PIL.Image  # noqa: F401  (fails here, once, and not in every thread)

    shape = (len(images), *_SHAPE)
    cache.parent.mkdir(parents=True, exist_ok=True)
    with replace_atomically(cache) as part:
        # A memory map on a full disk ends in a bus error, not in an exception.
        if (free := shutil.disk_usage(part.parent).free) < (needed := int(np.prod(shape))):
            raise ValueError(f"{part.parent} has {free} bytes free, but the decoded images take {needed}.")
        decoded = np.lib.format.open_memmap(part, mode="w+", dtype=np.uint8, shape=shape)

        def decode(index: int) -> None:
            name = images[index].name
            decoded[index] = _decode(source.read(name), name)

        with ThreadPoolExecutor(os.cpu_count()) as pool, progress_bar("{task.completed}/{task.total}") as bar:
            for _ in bar.track(pool.map(decode, range(len(images))), len(images), description="Decoding Tiny ImageNet"):
                pass
        decoded.flush()


def _open_cache(cache: Path, count: int) -> npt.NDArray[np.uint8] | None:
    """Map the cache copy-on-write: torch gets a writable array without a copy, and the file never changes."""
    try:
        images: npt.NDArray[np.uint8] = np.load(cache, mmap_mode="c", allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return images if images.shape == (count, *_SHAPE) and images.dtype == np.uint8 else None


def _cache_folder(source: Path) -> Path:
    """Keep the cache beside the source, or in the user's data folder where that is not writable."""
    beside = source.parent
    return (beside if os.access(beside, os.W_OK) else data_root()) / "pclc-cache"


def read_tiny_imagenet(paths: tuple[Path, ...], split: str) -> Arrays:
    """Read a split; the official ``val`` is the test split, because the official test labels were never published.

    The cache is named by a hash of the names, labels and fingerprints of its images, so that a changed source is
    decoded again. Labels are the positions of the sorted wnids, as in torchvision's ``ImageFolder``.
    """
    (path,) = paths
    zipped = path.suffix == ".zip"
    source_path = path if zipped else path.parent
    opened: AbstractContextManager[_Source] = closing(_Zip(path)) if zipped else nullcontext(_Folder(source_path))
    with opened as source:
        wnids = sorted(source.read("wnids.txt").decode().split())
        if len(wnids) != _CLASSES:
            raise ValueError(f"{source_path}: expected {_CLASSES} classes in wnids.txt, but got {len(wnids)}.")
        images = _train_images(source) if split == "train" else _val_images(source)
        if not images:
            raise FileNotFoundError(f"{source_path} has no images for the {split} split.")
        if unknown := {image.wnid for image in images} - set(wnids):
            raise ValueError(f"{source_path}: {min(unknown)!r} is the class of an image, but is not in wnids.txt.")
        key = hashlib.sha256("\n".join(map("\t".join, images)).encode()).hexdigest()[:16]
        cache = _cache_folder(source_path) / f"tiny-imagenet-{split}-{key}.npy"
        decoded = _open_cache(cache, len(images))
        if decoded is None:
            _decode_all(source, images, cache)
            decoded = _open_cache(cache, len(images))
    if decoded is None:
        raise ValueError(f"{cache} was written but cannot be read back. Is its disk damaged?")
    position = {wnid: index for index, wnid in enumerate(wnids)}
    return Arrays(decoded, np.array([position[image.wnid] for image in images], np.int64), tuple(wnids))
