"""The TOML files that come with the package, read strictly."""

import tomllib
from collections.abc import Collection, Mapping
from importlib.resources import files
from typing import Any


def read_toml(folder: str, name: str) -> dict[str, Any]:
    """The content of one of the package's files."""
    return tomllib.loads((files("pclc.experiments") / folder / f"{name}.toml").read_text(encoding="utf-8"))


def check_keys(
    content: object, where: str, *, required: Mapping[str, type], optional: Mapping[str, type] | None = None
) -> None:
    """Refuse a table with a key that is unknown, missing, or of another type.

    Example:
        >>> check_keys({"sede": 1}, "table1", required={"seed": int})
        Traceback (most recent call last):
        ...
        ValueError: Expected the keys of table1 to be among seed, but got 'sede'.
    """
    if not isinstance(content, dict):
        raise ValueError(f"Expected {where} to be a table, but got {content!r}.")
    known = {**required, **(optional or {})}
    for name, value in content.items():
        if name not in known:
            raise ValueError(f"Expected the keys of {where} to be among {', '.join(known)}, but got {name!r}.")
        if not isinstance(value, known[name]) or (isinstance(value, bool) and known[name] is int):
            raise ValueError(f"Expected `{name}` of {where} to be of type {known[name].__name__}, but got {value!r}.")
    for name in required:
        if name not in content:
            raise ValueError(f"Expected {where} to have `{name}`, but it has {', '.join(content) or 'nothing'}.")


def check_one(key: str, value: object, choices: Collection[str], where: str) -> None:
    """Refuse a value that is not among the choices."""
    if value not in choices:
        raise ValueError(f"Expected `{key}` of {where} to be among {', '.join(choices)}, but got {value!r}.")
