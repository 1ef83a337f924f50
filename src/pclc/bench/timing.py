"""Timing that compares fairly: variants take turns, so that a noisy minute hits all of them."""

import random
import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

from pclc.execution import captured

Work = Callable[[], object]


def seconds(variants: Mapping[str, Work], device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds of each variant in each round; on CUDA of a replayed graph, so that launches do not count."""
    if device.type == "cuda":
        return in_turns({name: captured(work) for name, work in variants.items()}, rounds, _cuda_seconds)
    return in_turns(variants, rounds, host_seconds)


def in_turns(variants: Mapping[str, Work], rounds: int, clock: Callable[[Work], float]) -> dict[str, list[float]]:
    """What the clock says of each variant in each round, after one run of each that does not count.

    Whoever comes after a variant that fills caches and heap pays for it, so the order changes with every round.
    """
    for work in variants.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in variants}
    for turn in range(rounds):
        for name in random.Random(turn).sample(list(variants), len(variants)):
            times[name].append(clock(variants[name]))
    return times


def ratio(times: Mapping[str, list[float]], of: str, to: str) -> float:
    """The median over rounds of how much longer `of` took than `to` in the same round."""
    return median(a / b for a, b in zip(times[of], times[to], strict=True))


def _cuda_seconds(work: Work, fewest: float = 0.02) -> float:
    """Mean seconds of enough repetitions to fill `fewest` seconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    repeats = 1
    while True:
        start.record()
        for _ in range(repeats):
            work()
        end.record()
        end.synchronize()
        total: float = start.elapsed_time(end) / 1e3
        if total >= fewest or repeats >= 1000:
            return total / repeats
        repeats = min(1000, max(repeats * 2, int(repeats * fewest / max(total, 1e-6)) + 1))


def host_seconds(work: Work) -> float:
    """Seconds by the host's clock; work on a device must wait for it itself."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
