"""PC-LC beside cross-entropy and beside the formula as one would write it down: time and memory."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pclc.bench.result import BenchResult, conditions
from pclc.bench.timing import ratio, seconds
from pclc.functional import pc_loss

SHAPES = ((256, 10), (65_536, 10), (8_192, 1_000), (4_096, 21_841), (4_096, 131_072))
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
ROWS = ("random", "confident")


def naive_pc_lc(logits: Tensor, target: Tensor) -> Tensor:
    """The loss as the paper prints it, in the obvious operations."""
    logits = logits.float()
    f = torch.softmax(logits, 1)
    true = target[:, None]
    hinge = (f + 0.995 - f.gather(1, true)).clamp(min=0).scatter(1, true, 0)
    largest_false = logits.scatter(1, true, -torch.inf).amax(1)
    constraint = (logits.gather(1, true)[:, 0] - largest_false).clamp(min=0)
    return (hinge.sum(1) + 0.05 * constraint).mean()


def bench_loss(
    device: torch.device,
    shapes: Sequence[tuple[int, int]] = SHAPES,
    dtypes: Sequence[str] = tuple(DTYPES),
    rounds: int = 9,
    compiled: bool = True,
    report: Callable[[dict[str, Any]], None] = lambda row: None,
) -> BenchResult:
    """Time forward + backward of each loss on the same logits; `report` sees each row as it is finished."""
    rows = []
    for N, K in shapes:
        for dtype in dtypes:
            for kind in ROWS:
                rows.append(_one_case(device, N, K, dtype, kind, rounds, compiled))
                report(rows[-1])
    how = "replayed from a CUDA graph, events around enough replays to fill 20 ms" if device.type == "cuda" else "eager"
    return BenchResult(
        benchmark="loss",
        command="pclc bench loss",
        notes=(
            f"Forward + backward, mean reduction, milliseconds, median of {rounds} rounds in which the variants take "
            f"turns ({how}). CE is `cross_entropy`, eager and with `torch.compile`; naive is PC-LC in the obvious "
            "operations. Ratios are medians of the rounds' ratios; `fastest CE` is the faster of the two. Memory is "
            "the peak requested beyond the logits, relative to them (CUDA only). Rows: `random` logits, or "
            "`confident` ones, whose true class has probabilities from one half to nearly one, so that both sides of "
            "the margin occur.",
        ),
        conditions=conditions(device),
        rows=tuple(rows),
    )


def _one_case(
    device: torch.device, N: int, K: int, dtype: str, kind: str, rounds: int, compiled: bool
) -> dict[str, Any]:
    generator = torch.Generator(device).manual_seed(0)
    logits = torch.randn(N, K, device=device, generator=generator)
    target = torch.randint(0, K, (N,), device=device, generator=generator)
    if kind == "confident":
        rest = torch.logsumexp(logits, 1, keepdim=True)
        lead = torch.rand(N, 1, device=device, generator=generator) * 10
        logits.scatter_(1, target[:, None], rest + lead)
    logits = logits.to(DTYPES[dtype]).requires_grad_()
    losses: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"PC-LC": pc_loss, "CE": F.cross_entropy}
    if compiled:
        torch.compiler.reset()
        losses["CE compiled"] = torch.compile(F.cross_entropy, dynamic=False)
    losses["naive"] = naive_pc_lc

    def work(loss: Callable[[Tensor, Tensor], Tensor]) -> Callable[[], Tensor]:
        return lambda: torch.autograd.grad(loss(logits, target), logits)[0]

    with torch.no_grad():  # a fast wrong kernel is no result
        torch.testing.assert_close(pc_loss(logits, target), naive_pc_lc(logits, target), rtol=1e-3, atol=1e-3)
    times = seconds({name: work(loss) for name, loss in losses.items()}, device, rounds)
    fastest = min(("CE", "CE compiled")[: 1 + compiled], key=lambda name: median(times[name]))
    row: dict[str, Any] = {"N": N, "K": K, "dtype": dtype, "rows": kind}
    row |= {f"{name} ms": median(times[name]) * 1e3 for name in losses}
    row |= {
        "PC-LC / CE": ratio(times, "PC-LC", "CE"),
        "PC-LC / fastest CE": ratio(times, "PC-LC", fastest),
        "naive / PC-LC": ratio(times, "naive", "PC-LC"),
        "memory / logits": _extra_memory(work(pc_loss), logits) if device.type == "cuda" else None,
    }
    return row


def _extra_memory(work: Callable[[], Tensor], logits: Tensor) -> float:
    # What was asked for, not what was reserved: the allocator's blocks are up to 1 MB larger than a request.
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before: int = torch.cuda.memory_stats()["requested_bytes.all.current"]
    work()
    torch.cuda.synchronize()
    peak: int = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    return (peak - before) / (logits.numel() * logits.element_size())
