"""Verify the files of a data set: are they the official ones, and can they be read?"""

import hashlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path

from pclc.data.description import SPLITS
from pclc.data.load import load_dataset
from pclc.data.registry import describe


@dataclass(frozen=True)
class Check:
    """The result for a data set: its files, those whose checksum is the published one, and the problems."""

    name: str
    files: tuple[Path, ...]
    verified: tuple[Path, ...]
    problems: tuple[str, ...]

    @property
    def missing(self) -> bool:
        """Whether none of its files are there, which is a problem only if somebody expected them."""
        return not self.files and bool(self.problems)


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def check_dataset(name: str, root: str | os.PathLike[str] | None = None) -> Check:
    """Verify the checksums of the files that would be loaded, read them, and count their images.

    A file without a published checksum (an unpacked folder, for one) is read and counted only.

    >>> check_dataset("digits").problems
    ()
    """
    description = describe(name)
    folder = description.folder(root)
    files: dict[Path, bool] = {}
    problems = []
    for split in SPLITS:
        found = description.find(folder, split)
        if found is None:
            problems.append(description.missing(folder, split))
            continue
        layout, paths = found
        for path in paths:
            if path in files:
                continue
            expected = layout.md5.get(path.relative_to(folder).as_posix())
            got = _md5(path) if expected else None
            files[path] = expected is not None and got == expected
            if got != expected:
                problems.append(f"{path}: expected the md5 checksum {expected}, but got {got}.")
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that images are missing is said below
                count = len(load_dataset(name, split, folder))
        except (ValueError, FileNotFoundError) as error:
            problems.append(str(error))
            continue
        if count != description.counts[split]:
            problems.append(
                f"{name}: expected {description.counts[split]} images in the {split} split, but got {count}."
            )
    verified = tuple(path for path, good in files.items() if good)
    return Check(name, tuple(files), verified, tuple(problems))
