"""Which state of the code a result comes from: a table may hold several, but not unseen."""

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable

# What decides results; tables and pages are made anew from them each time.
_PACKAGES = ("analysis", "attacks", "data", "evaluation", "execution", "losses", "models", "training")


@cache
def code_hash() -> str:
    """Eight digits of the source of all packages that decide results; a changed comment changes it too.

    Example:
        >>> len(code_hash())
        8
    """
    return source_hash([files("pclc") / package for package in _PACKAGES])


def source_hash(folders: list[Traversable]) -> str:
    """Of names and contents of the Python files below some folders."""
    digest = hashlib.sha256()
    for folder in folders:
        _add(digest, folder, folder.name)
    return digest.hexdigest()[:8]


def _add(digest: "hashlib._Hash", folder: Traversable, place: str) -> None:
    for path in sorted(folder.iterdir(), key=lambda path: path.name):
        if path.is_dir():
            _add(digest, path, f"{place}/{path.name}")
        elif path.name.endswith(".py"):
            content = path.read_bytes()
            digest.update(f"{place}/{path.name} {len(content)};".encode() + content)
