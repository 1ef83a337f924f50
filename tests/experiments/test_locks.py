"""Locks: one holder at a time, and none that is gone keeps others out."""

import json
import multiprocessing
import os
import time
from pathlib import Path

from pclc.experiments import locks
from pclc.experiments.locks import try_lock


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "a" / "x.lock"
    with try_lock(path) as first:
        assert first
        with try_lock(path) as second:
            assert not second
        assert path.exists(), "who was refused leaves the lock alone"
    assert not path.exists()
    with try_lock(path) as third:
        assert third


def _hold(path: Path) -> None:
    with try_lock(path) as held:
        assert held
        time.sleep(60)


def test_the_lock_of_a_killed_process_is_taken_over(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    process = multiprocessing.get_context("fork").Process(target=_hold, args=(path,))
    process.start()
    until = time.monotonic() + 30
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    time.sleep(0.05)
    with try_lock(path) as held:
        assert not held, "it is alive"
    process.kill()
    until = time.monotonic() + 10
    while not locks._is_zombie(process.pid) and time.monotonic() < until:  # type: ignore[arg-type]
        time.sleep(0.01)
    with try_lock(path) as held:
        assert held, "it is gone, though nobody has asked for its end yet"
    process.join()


def test_an_owner_elsewhere_is_gone_when_it_is_silent(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text(json.dumps({"host": "elsewhere", "pid": os.getpid(), "token": "t"}))
    with try_lock(path, stale=60) as held:
        assert not held
    os.utime(path, (time.time() - 100, time.time() - 100))
    with try_lock(path, stale=60) as held:
        assert held


def test_a_lock_without_an_owner_is_believed_until_it_is_old(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text("")  # killed between making and writing it
    with try_lock(path, stale=60) as held:
        assert not held
    os.utime(path, (time.time() - 100, time.time() - 100))
    with try_lock(path, stale=60) as held:
        assert held


def test_a_holder_keeps_its_lock_young(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    with try_lock(path, beat=0.05):
        os.utime(path, (0, 0))
        time.sleep(0.3)
        assert path.stat().st_mtime > time.time() - 60


def test_only_one_takes_over(tmp_path: Path) -> None:
    path = tmp_path / "x.lock"
    path.write_text("{}")
    os.utime(path, (0, 0))
    gate = tmp_path / "x.lock.gate"
    gate.mkdir()
    with try_lock(path, stale=60) as held:
        assert not held, "another process is taking over"
    os.utime(gate, (0, 0))
    with try_lock(path, stale=60):
        pass  # whoever was at the gate is gone: it is opened for the next
    with try_lock(path, stale=60) as held:
        assert held
