"""Timing that compares fairly: variants take turns, so that a noisy minute hits all of them."""

import random
import time
from collections.abc import Callable, Mapping
from statistics import median

import torch

Work = Callable[[], object]


def seconds(variants: Mapping[str, Work], device: torch.device, rounds: int) -> dict[str, list[float]]:
    """Seconds of each variant in each round, in changing order.

    On CUDA they are those of a replayed graph, so that launches do not count.
    """
    prepared = {name: _captured(work) if device.type == "cuda" else work for name, work in variants.items()}
    for work in prepared.values():
        work()
    times: dict[str, list[float]] = {name: [] for name in variants}
    names = list(prepared)
    for turn in range(rounds):
        # Whoever comes after a variant that fills caches and heap pays for it: so the order changes with every round.
        for name in random.Random(turn).sample(names, len(names)):
            work = prepared[name]
            times[name].append(_cuda_seconds(work) if device.type == "cuda" else host_seconds(work))
    return times


def ratio(times: Mapping[str, list[float]], of: str, to: str) -> float:
    """The median over rounds of how much longer `of` took than `to` in the same round."""
    return median(a / b for a, b in zip(times[of], times[to], strict=True))


def _captured(work: Work) -> Work:
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # compilation and lazy set-up must not fall into the capture
            work()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = work()  # the graph writes to these tensors, so they must stay alive

    def replay() -> object:
        graph.replay()
        return kept

    return replay


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
