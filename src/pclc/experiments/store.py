"""The result store: a folder in which finished work is found again by the hash of its configuration.

=====================================  ================================================================================
``models/HASH/``                       run directory of a training (`pclc.training.run_directory`), with
                                       ``checksums.json`` when it is finished and, while its weights are kept, what
                                       attacks on it have found
``cells/HASH/result.json``             what a cell gave: counts, conditions, costs, checksums; written last
``cells/HASH/evaluation.json.gz``      outcomes of every example (`pclc.evaluation.document`), compressed
``cells/HASH/analyses.json.gz``        what the cell's analyses gave
``cells/HASH/audit.json.gz``           the audit of its model, without the witnesses, where one was asked for
``locks/``                             who works on what
=====================================  ================================================================================

A cell is finished when its ``result.json`` is whole and the other files are those it speaks of. Several processes and
hosts may share a store: whoever works on a model or a cell holds its lock.
"""

import gzip
import hashlib
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from pclc.experiments.experiment import Cell, Training
from pclc.experiments.locks import try_lock
from pclc.files import write_atomically

VERSION = 2
_WEIGHTS = "model.safetensors"
_RESULT, _CHECKSUMS = "result.json", "checksums.json"
_KEPT = ("config.json", "metrics.jsonl", "model.json", "training.json")  # of a model, besides its weights


class DamagedWarning(UserWarning):
    """Something in a store is not what was written there, and is computed again."""


class Store:
    """A result store at `path`; two objects with the same path are the same store."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def cell_folder(self, cell: Cell) -> Path:
        """Where a cell's results are."""
        return self.path / "cells" / cell.hash

    def model_folder(self, training: Training) -> Path:
        """Where a training keeps its files."""
        return self.path / "models" / training.hash

    def lock(self, thing: Cell | Training) -> AbstractContextManager[bool]:
        """Hold a cell or a model; False where another process does."""
        kind = "cell" if isinstance(thing, Cell) else "model"
        return try_lock(self.path / "locks" / f"{kind}-{thing.hash}.lock")

    def load(self, cell: Cell) -> dict[str, Any] | None:
        """What a finished cell gave; None where it has to be computed, with a warning where it is damaged."""
        folder = self.cell_folder(cell)
        if not (folder / _RESULT).exists():
            return None
        problem = None
        try:
            result = json.loads((folder / _RESULT).read_bytes())
            written = result.pop("sha256")
            if written != _digest(_as_bytes(result)):
                problem = f"{_RESULT} has changed"
            elif result["version"] != VERSION or result["hash"] != cell.hash:
                problem = f"{_RESULT} is of another version or cell"
            else:
                problem = _first_problem(folder, result["files"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            problem = f"{_RESULT} cannot be read: {error}"
        if problem:
            warnings.warn(f"{folder} is damaged and will be computed again: {problem}.", DamagedWarning, stacklevel=2)
            return None
        return dict(result)

    def epochs(self, training: Training) -> list[dict[str, Any]]:
        """What was measured in each epoch of a training; nothing where its metrics are not kept."""
        try:
            lines = (self.model_folder(training) / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            return [dict(json.loads(line)) for line in lines]
        except (OSError, TypeError, ValueError):
            return []

    def save(self, cell: Cell, result: Mapping[str, Any], details: Mapping[str, Any]) -> None:
        """Write what a cell gave; `details` by name go to compressed files of their own."""
        folder = self.cell_folder(cell)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / _RESULT).unlink(missing_ok=True)
        packed = {f"{name}.json.gz": gzip.compress(_as_bytes(content), mtime=0) for name, content in details.items()}
        for name, data in packed.items():
            write_atomically(folder / name, data)
        content = {
            "version": VERSION,
            "hash": cell.hash,
            "cell": cell.as_dict(),
            **result,
            "files": {name: _digest(data) for name, data in packed.items()},
        }
        # As it will be read: JSON has no tuples, and numbers for no keys.
        content = json.loads(_as_bytes(content))
        write_atomically(folder / _RESULT, _as_bytes({**content, "sha256": _digest(_as_bytes(content))}, indent=1))

    def details(self, cell: Cell, name: str) -> Any:
        """One of the compressed files of a finished cell."""
        return json.loads(gzip.decompress((self.cell_folder(cell) / f"{name}.json.gz").read_bytes()))

    def is_trained(self, training: Training) -> bool:
        """Whether a model is finished, with its weights, and as it was written."""
        folder = self.model_folder(training)
        if not (folder / _CHECKSUMS).exists() or not (folder / _WEIGHTS).exists():
            return False
        try:
            problem = _first_problem(folder, json.loads((folder / _CHECKSUMS).read_bytes()))
        except (ValueError, AttributeError) as error:
            problem = f"{_CHECKSUMS} cannot be read: {error}"
        if problem:
            warnings.warn(f"{folder} is damaged and will be trained again: {problem}.", DamagedWarning, stacklevel=2)
        return not problem

    def seal(self, training: Training) -> bool:
        """Note the checksums of a model that is trained and has none yet; False where there is no such model."""
        folder = self.model_folder(training)
        names = {path.name for path in folder.glob("*")}
        if _CHECKSUMS in names or not names >= {_WEIGHTS, *_KEPT}:
            return False
        sums = {name: _digest((folder / name).read_bytes()) for name in (_WEIGHTS, *_KEPT)}
        write_atomically(folder / _CHECKSUMS, _as_bytes(sums, indent=1))
        return True

    def clear(self, training: Training) -> None:
        """Throw a model away."""
        shutil.rmtree(self.model_folder(training), ignore_errors=True)

    def drop_weights(self, training: Training) -> None:
        """Keep of a model only what is small: configuration, metrics and result."""
        folder = self.model_folder(training)
        if not (folder / _CHECKSUMS).exists():
            return
        for path in folder.iterdir():
            if path.name not in _KEPT:
                shutil.rmtree(path) if path.is_dir() else path.unlink()

    def results(self) -> Iterator[dict[str, Any]]:
        """Every result in the store that is as it was written, whatever it is of: what costs are known from."""
        for file in sorted(self.path.glob(f"cells/*/{_RESULT}")):
            try:
                content = json.loads(file.read_bytes())
            except (OSError, ValueError):
                continue
            if not isinstance(content, dict) or content.get("version") != VERSION:
                continue
            if content.pop("sha256", None) == _digest(_as_bytes(content)):
                yield content


def _first_problem(folder: Path, sums: Mapping[str, str]) -> str | None:
    for name, expected in sums.items():
        file = folder / name
        if not file.exists():
            return f"{name} is missing"
        if _digest(file.read_bytes()) != expected:
            return f"{name} has changed"
    return None


def _as_bytes(content: object, indent: int | None = None) -> bytes:
    return (json.dumps(content, indent=indent, sort_keys=True) + "\n").encode()


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
