"""Work captured in a CUDA graph, so that a replay costs one launch."""

from collections.abc import Callable
from functools import cache

import torch


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    """One for all captures: cuBLAS keeps a workspace of 32 MB for every stream that it has ever seen."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def captured(
    work: Callable[[], object],
    device: torch.device | None = None,
    warm_ups: int = 3,
    pool: tuple[int, int] | None = None,
) -> Callable[[], None]:
    """Run `work`, which uses `device` (None: the current one), a few times, then record it; the result replays it.

    `work` must read and write the same tensors each time, and must not need the host. The runs before the recording
    change state as any call does, which the caller may have to restore. Graphs that share a `pool` of memory must not
    run side by side.
    """
    with torch.cuda.device(device):  # a graph of another device's stream would be empty
        stream, caller = _side_stream(torch.cuda.current_device()), torch.cuda.current_stream()
        stream.wait_stream(caller)
        with torch.cuda.stream(stream):  # also around the recording, which leaves its stream behind where it fails
            try:
                for _ in range(warm_ups):
                    work()
            finally:  # also where it fails: what was begun still writes
                caller.wait_stream(stream)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, stream=stream):  # type: ignore[arg-type]
                work()
    return graph.replay
