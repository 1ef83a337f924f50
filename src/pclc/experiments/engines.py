"""Where jobs are done: in this process, in a pool of processes on this machine, or on a Ray cluster."""

import importlib
import multiprocessing
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from pclc.experiments.work import Job, do_job
from pclc.extras import needs_extra

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Workers:
    """What does jobs: `submit` gives a future of :func:`pclc.experiments.work.do_job`; `slots` at a time make sense."""

    submit: Callable[[Job], "Future[str]"]
    slots: int


@contextmanager
def open_engine(name: str, jobs: int = 1, address: str | None = None, threads: int = 1) -> Iterator[Workers]:
    """Yield the workers of an engine.

    Args:
        name: "local" or "ray".
        jobs: models that are worked on at a time: on this machine, or with Ray on each GPU.
        address: of a Ray cluster; None starts Ray on this machine.
        threads: of each job, for Ray to count cores by.
    """
    if name not in ENGINES:
        raise ValueError(f"Expected `engine` to be one of {', '.join(ENGINES)}, but got {name!r}.")
    if jobs < 1:
        raise ValueError(f"Expected `jobs` to be at least 1, but got {jobs!r}.")
    if address is not None and name != "ray":
        raise ValueError(f'Expected `address` to be used with engine "ray", but got {address!r} for {name!r}.')
    with _ray(jobs, address, threads) if name == "ray" else _local(jobs) as workers:
        yield workers


@contextmanager
def _local(jobs: int) -> Iterator[Workers]:
    if jobs == 1:
        yield Workers(_do_at_once, 1)
        return
    context = multiprocessing.get_context("spawn")
    start = partial(ProcessPoolExecutor, jobs, mp_context=context, initializer=_leave_with, initargs=(os.getpid(),))
    pool = start()

    def submit(job: Job) -> "Future[str]":
        nonlocal pool
        try:
            return pool.submit(do_job, job)
        except BrokenProcessPool:  # a process was killed, often for its memory: what ran failed, the rest goes on
            pool.shutdown()
            pool = start()
            return pool.submit(do_job, job)

    try:
        yield Workers(submit, jobs)
    finally:
        pool.shutdown(cancel_futures=True)


def _do_at_once(job: Job) -> "Future[str]":
    future: Future[str] = Future()
    try:
        future.set_result(do_job(job))
    except Exception as error:
        future.set_exception(error)
    return future


def _leave_with(parent: int) -> None:
    """End this process when the one that started it is gone, or when somebody interrupts: nobody waits for its results.

    What it has found until then is kept, so that it needs no time to leave.
    """
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))

    def watch() -> None:
        never = threading.Event()
        while os.getppid() == parent:
            never.wait(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _ray(jobs: int, address: str | None, threads: int) -> Iterator[Workers]:
    with needs_extra("ray", "The engine ray"):
        ray: Any = importlib.import_module("ray")  # as Any, since types are there only where Ray is
    started = not ray.is_initialized()
    if started:
        if address not in (None, "auto"):
            _check_reachable(address)
        # None would also join a cluster that once ran here, or that the environment names, and wait for it.
        ray.init(address=address or "local", include_dashboard=False, log_to_driver=False, logging_level="error")
    try:
        resources: dict[str, Any] = ray.cluster_resources()
        gpus, cpus = int(resources.get("GPU", 0)), int(resources.get("CPU", 1))
        needs = {"num_gpus": 1 / jobs, "num_cpus": 0} if gpus else {"num_cpus": min(threads, cpus)}
        slots = gpus * jobs if gpus else max(1, cpus // threads)
        # A job that is cut off with its host is tried again there or elsewhere: it goes on where it was.
        remote = ray.remote(max_retries=2, **needs)(do_job)
        yield Workers(lambda job: remote.remote(job).future(), slots)
    finally:
        if started:
            ray.shutdown()


def _check_reachable(address: str) -> None:
    """Ray itself knocks at a wrong address for a quarter of an hour before it says so."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise ValueError(
            f'Expected `address` to be "auto" or HOST:PORT of a Ray cluster that runs, but got {address!r}: {error}.'
        ) from error
