"""The description of a data set: what it holds, how it lies on disk, where it comes from."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pclc.data.root import data_root

SPLITS = ("train", "test")


class Arrays(NamedTuple):
    """A split as read: images (N, C, H, W), labels, and the names of the classes where only the files have them."""

    images: npt.NDArray[np.uint8]
    labels: npt.NDArray[np.int64]
    classes: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Layout:
    """One of the ways in which people have a data set on disk.

    ``parts[split]`` lists the files that the split needs, each as its possible paths below the root; ``read`` gets the
    files that were found; ``md5`` holds the published checksums by path below the root.
    """

    parts: Mapping[str, tuple[tuple[str, ...], ...]]
    read: Callable[[tuple[Path, ...], str], Arrays]
    md5: Mapping[str, str] = field(default_factory=dict)

    def find(self, root: Path, split: str) -> tuple[Path, ...] | None:
        """Return the files of a split, or None where not all are there."""
        found = []
        for part in self.parts[split]:
            path = next((root / name for name in part if (root / name).is_file()), None)
            if path is None:
                return None
            found.append(path)
        return tuple(found)


@dataclass(frozen=True)
class Download:
    """An official file: its path below the root, its checksum, and where to get it, the first address first."""

    path: str
    md5: str
    urls: tuple[str, ...]


@dataclass(frozen=True)
class Description:
    """A data set: shape (C, H, W), number and names of classes, images in each official split, layouts, downloads.

    ``classes`` is empty where the files hold the names. The first complete layout is read.
    """

    name: str
    shape: tuple[int, int, int]
    num_classes: int
    classes: tuple[str, ...]
    counts: Mapping[str, int]
    layouts: tuple[Layout, ...]
    downloads: tuple[Download, ...] = ()

    @property
    def built_in(self) -> bool:
        """Whether the data set comes with a library and needs no files."""
        return not self.downloads

    def folder(self, root: str | os.PathLike[str] | None) -> Path:
        """Return the folder to look in; a built-in data set needs none."""
        return Path() if self.built_in else data_root(root)

    def find(self, root: Path, split: str) -> tuple[Layout, tuple[Path, ...]] | None:
        """Return the first layout in which a split is complete, with its files, or None."""
        for layout in self.layouts:
            paths = layout.find(root, split)
            if paths is not None:
                return layout, paths
        return None

    def missing(self, root: Path, split: str) -> str:
        """Say which files belong where, and which are missing if only some are there."""
        ways, missing = [], []
        for layout in self.layouts:
            parts = layout.parts[split]
            absent = [part for part in parts if not any((root / name).is_file() for name in part)]
            ways.append(", ".join(" or ".join(part) for part in parts))
            if 0 < len(absent) < len(parts):
                missing += [part[0] for part in absent]
        partly = f" (incomplete; missing: {', '.join(missing)})" if missing else ""
        return (
            f"{self.name}: the {split} split is not in {root}{partly}. Run `pclc data fetch {self.name}`, give another "
            f"folder with --root or PCLC_DATA, or put there {'; or '.join(ways)}."
        )
