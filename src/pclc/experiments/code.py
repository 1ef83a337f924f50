"""Which state of the code a result comes from: a table may hold several, but not unseen."""

import hashlib
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pclc

# What decides results; tables and pages are made anew from them each time.
_PACKAGES = ("analysis", "attacks", "data", "evaluation", "execution", "losses", "models", "training")


@cache
def code_hash() -> str:
    """Eight digits of the source of all packages that decide results; a changed comment changes it too.

    Example:
        >>> len(code_hash())
        8
    """
    return source_hash([Path(pclc.__file__).with_name(package) for package in _PACKAGES])


def source_hash(folders: Sequence[Path]) -> str:
    """Of names and contents of the Python files below some folders."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*.py"), key=lambda path: path.parts):
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder.parent).as_posix()} {len(content)};".encode() + content)
    return digest.hexdigest()[:8]
