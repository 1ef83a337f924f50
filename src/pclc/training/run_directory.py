"""The run directory: everything needed to resume a run, to repeat it, and to read its results.

=====================  ================================================================================================
``config.json``        the settings (configuration, data set, model, precision) and their hash; the versions
``metrics.jsonl``      one line per epoch
``checkpoint.pt``      the state from which an unfinished run resumes; removed when it is finished
``model.safetensors``  the trained weights; ``model.json`` beside it names the network
``training.json``      the results, written last: a run is finished when this file exists
=====================  ================================================================================================

Evaluations add ``evaluation.json`` and adversarial examples. Every file appears whole or not at all.
"""

import io
import json
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from pclc.files import write_atomically
from pclc.hashes import settings_hash
from pclc.version import __version__

VERSION = 1


class RunDirectory:
    """A folder in which a run keeps its files."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def begin(self, config: dict[str, Any]) -> None:
        """Claim the folder for a run; refuse one that holds a run with other settings."""
        wanted = json.loads(json.dumps(config))
        self.path.mkdir(parents=True, exist_ok=True)
        with _locked(self.path, wait=True):  # a second process would overwrite what the first has begun
            file = self.path / "config.json"
            if file.exists():
                found = self.config
                if found != wanted:  # by value, not by hash: 0 is 0.0
                    different = sorted(_differences(found, wanted))
                    raise ValueError(
                        f"Expected {self.path} to be new or to hold the same run, but it holds another one "
                        f"(different: {', '.join(different)}). Choose another folder or remove that one."
                    )
                return
            if self.finished:  # which would be taken for this run
                raise ValueError(
                    f"Expected {self.path} to be new or to hold a run, but it has a training.json and no config.json. "
                    "Choose another folder or remove that one."
                )
            content = {
                "version": VERSION,
                "run": wanted,
                "hash": settings_hash(wanted),
                "versions": {"pclc": __version__, "torch": torch.__version__, "python": platform.python_version()},
            }
            _write(file, content)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Refuse to train here while another process does: both would write the same files."""
        with _locked(self.path / "config.json", wait=False) as locked:
            for begun in self.path.glob(".tmp-*-checkpoint.pt") if locked else ():  # by a process that was killed
                begun.unlink()
            yield

    @property
    def config(self) -> dict[str, Any]:
        """The settings of the run."""
        file = self.path / "config.json"
        run = _read(file).get("run")
        if not isinstance(run, dict):
            raise ValueError(f"Expected `run` in {file} to hold the settings of a run, but got {run!r}.")
        return run

    @property
    def finished(self) -> bool:
        """Whether the run is finished."""
        return (self.path / "training.json").exists()

    @property
    def result(self) -> dict[str, Any]:
        """The results of a finished run."""
        return _read(self.path / "training.json")

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One entry for each epoch."""
        file = self.path / "metrics.jsonl"
        lines = file.read_text().splitlines(keepends=True) if file.exists() else []
        return [json.loads(line) for line in lines if line.endswith("\n")]  # a kill may leave half of the last one

    def write_metrics(self, history: list[dict[str, Any]]) -> None:
        """Replace the metrics, which never hold an epoch that the checkpoint does not know."""
        lines = "".join(json.dumps(entry) + "\n" for entry in history)
        write_atomically(self.path / "metrics.jsonl", lines.encode())

    def append_metrics(self, entry: dict[str, Any]) -> None:
        """Add an epoch."""
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def save_checkpoint(self, state: dict[str, Any]) -> None:
        """Write the state from which the run can resume."""
        content = io.BytesIO()  # torch.save itself does not say why a file could not be written
        torch.save(state, content)
        write_atomically(self.path / "checkpoint.pt", content.getbuffer())

    def load_checkpoint(self) -> dict[str, Any] | None:
        """The state from which the run resumes, on the CPU, or None."""
        file = self.path / "checkpoint.pt"
        if not file.exists():
            return None
        try:
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a damaged file raises errors of all kinds
            raise ValueError(
                f"Expected {file} to be a checkpoint, but it cannot be read ({type(error).__name__}). Remove it to "
                "start again."
            ) from error
        return state

    def finish(self, result: dict[str, Any]) -> None:
        """Write the results and remove the checkpoint."""
        _write(self.path / "training.json", {"version": VERSION, **result})
        (self.path / "checkpoint.pt").unlink(missing_ok=True)


@contextmanager
def _locked(path: Path, wait: bool) -> Iterator[bool]:
    """Hold the system's lock on a file or folder, which is released when the process ends, however it ends.

    False where there are no such locks, on Windows and on some network disks: there nobody waits or is refused.
    """
    try:
        import fcntl
    except ImportError:
        yield False
        return
    descriptor = os.open(path, os.O_RDONLY)
    locked = True
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ValueError(
                f"Expected no other process to be training in {path.parent}, but one is. Wait for it, or choose "
                "another folder."
            ) from error
        except OSError:
            locked = False
        yield locked
    finally:
        os.close(descriptor)


def _differences(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[str]:
    names = []
    for key in a.keys() | b.keys():
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            names += _differences(left, right, f"{prefix}{key}.")
        elif left != right:
            names.append(f"{prefix}{key} {left!r} -> {right!r}")
    return names


def _read(file: Path) -> dict[str, Any]:
    if not file.exists():
        raise FileNotFoundError(f"Expected a run directory with {file.name}, but {file.parent} has none.")
    try:
        content: dict[str, Any] = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"Expected {file} to be JSON, but it cannot be read: {error}.") from error
    if not isinstance(content, dict):
        raise ValueError(f"Expected {file} to hold an object, but got a {type(content).__name__}.")
    if content.get("version") != VERSION:
        raise ValueError(f"Expected {file} to have version {VERSION}, but got {content.get('version')!r}.")
    return content


def _write(file: Path, content: dict[str, Any]) -> None:
    write_atomically(file, (json.dumps(content, indent=1) + "\n").encode())
