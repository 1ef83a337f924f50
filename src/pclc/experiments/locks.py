"""Locks between processes that share a folder, also over hosts: a file that one of them creates and keeps alive."""

import json
import os
import secrets
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

# An owner touches its lock every so often; one that has not for ten times as long is taken to be gone.
_BEAT_SECONDS = 15.0
_STALE_SECONDS = 150.0


@contextmanager
def try_lock(path: Path, beat: float = _BEAT_SECONDS, stale: float = _STALE_SECONDS) -> Iterator[bool]:
    """Hold the lock at `path` for the block; False where somebody else does, who is still alive.

    The file names its owner. An owner on this host is gone when its process is, and any owner, when it has not touched
    the file for `stale` seconds, by the clock of the file system. What the gone leave is taken over.

    Args:
        path: of the lock file; its folder is made.
        beat: seconds between two touches.
        stale: seconds without a touch after which an owner counts as gone.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "x.lock"
        >>> with try_lock(path) as first, try_lock(path) as second:
        ...     print(first, second)
        True False
        >>> path.exists()
        False
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    token = secrets.token_hex(8)
    if not _create(path, token) and not (_take_over(path, stale) and _create(path, token)):
        yield False
        return
    over = threading.Event()
    beats = threading.Thread(target=_keep_alive, args=(path, beat, over), daemon=True)
    beats.start()
    try:
        yield True
    finally:
        over.set()
        beats.join()
        if _owner(path).get("token") == token:
            path.unlink(missing_ok=True)


def _create(path: Path, token: str) -> bool:
    try:
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(descriptor, "w") as file:
        json.dump({"host": _host(), "pid": os.getpid(), "token": token}, file)
    return True


def _take_over(path: Path, stale: float) -> bool:
    """Remove the lock of an owner that is gone; only one process at a time looks and removes."""
    gate = path.with_name(path.name + ".gate")
    try:
        gate.mkdir()
    except FileExistsError:
        # Whoever passes the gate is through at once, unless it is killed there.
        if _age(gate, path.parent) > stale:
            with suppress(OSError):
                gate.rmdir()
        return False
    try:
        if not _is_gone(path, stale):
            return False
        path.unlink(missing_ok=True)
        return True
    finally:
        with suppress(OSError):
            gate.rmdir()


def _is_gone(path: Path, stale: float) -> bool:
    owner = _owner(path)
    if owner.get("host") == _host() and isinstance(owner.get("pid"), int) and not _is_alive(owner["pid"]):
        return True
    return _age(path, path.parent) > stale


def _age(path: Path, folder: Path) -> float:
    """Seconds since a file was touched, by the clock that wrote it: hosts may disagree on the time."""
    probe = folder / f".now-{secrets.token_hex(4)}"
    try:
        probe.touch()
        return probe.stat().st_mtime - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
    finally:
        probe.unlink(missing_ok=True)


def _owner(path: Path) -> dict[str, Any]:
    """Who holds a lock; nothing where that cannot be read."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _keep_alive(path: Path, beat: float, over: threading.Event) -> None:
    while not over.wait(beat):
        with suppress(OSError):
            os.utime(path)


def _is_alive(pid: int) -> bool:
    if os.name != "posix":
        return True  # the signal 0 asks only there; elsewhere touches alone tell
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """A killed process whose parent has not asked for its end yet still has its number."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return False


def _host() -> str:
    """The machine and its last start, since numbers of processes begin anew with each."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        started = f"{uuid.getnode():x}"
    return f"{socket.gethostname()} {started}"
