"""Work on rows in batches that fit into memory and, on CUDA, are replayed from graphs at a few sizes."""

import warnings
from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor

from pclc.execution.capture import captured

Rows = tuple[Tensor, ...]  # tensors with one row per example
Work = Callable[..., Rows]

# A graph costs about two passes to record, so rare sizes stay eager.
_EAGER_CALLS = 2
_SMALLEST_GRAPH = 16


class Batched:
    """A function of tensors with one row per example, called with any number of rows.

    It runs on `size` rows at a time; where they do not fit into memory the size is halved, with a warning. With
    `few_sizes` a batch is padded to one of a few sizes, so rows must not mix. With `graphs` it is then replayed from
    the CUDA graph of that size. A function that cannot be recorded, or gives different results when replayed, stays
    eager: random numbers that do not come from the device would be the same in every replay.

    Args:
        work: tensors to a tuple of tensors, all with as many rows.
        size: rows at a time.
        graphs: record CUDA graphs.
        pool: memory that graphs share, from `torch.cuda.graph_pool_handle()`.
        few_sizes: pad eager batches too: cuDNN needs about a millisecond to choose a convolution's kernel for a new
            batch size, by the figures in PyTorch's pull request 187212.
    """

    def __init__(
        self,
        work: Work,
        size: int,
        graphs: bool = False,
        pool: tuple[int, int] | None = None,
        few_sizes: bool = False,
    ) -> None:
        self.size = size
        self._work, self._graphs, self._pool, self._few_sizes = work, graphs, pool, few_sizes
        self._seen: Counter[int] = Counter()
        self._recorded: dict[int, Work] = {}

    def __call__(self, *rows: Tensor) -> Rows:
        """Concatenate the results of all batches; an empty input still goes through once, for the shapes."""
        parts: list[Rows] = []
        start, n = 0, len(rows[0])
        while start < n or not parts:
            size = self.size
            part = self._fitting(tuple(tensor[start : start + size] for tensor in rows))
            if part is None:
                self._halve()
            else:
                parts.append(part)
                start += size
        return parts[0] if len(parts) == 1 else tuple(torch.cat(columns) for columns in zip(*parts, strict=True))

    def release(self) -> None:
        """Give the memory of the graphs back."""
        self._recorded.clear()
        self._seen.clear()

    def _fitting(self, rows: Rows) -> Rows | None:
        """The results, or None where they need too much memory."""
        try:
            return self._batch(rows)
        except torch.OutOfMemoryError:
            return None  # not handled here: until this returns, the error keeps the tensors of the failed pass alive

    def _batch(self, rows: Rows) -> Rows:
        n = len(rows[0])
        if not self._graphs or n == 0:
            return self._eager(*rows)
        bucket = self._bucket(n)
        if bucket not in self._recorded:
            self._seen[bucket] += 1
            if self._seen[bucket] <= _EAGER_CALLS:
                return self._eager(*rows)
            self._recorded[bucket] = self._record(bucket, rows)
        return self._recorded[bucket](*rows)

    def _eager(self, *rows: Tensor) -> Rows:
        n = len(rows[0])
        missing = self._bucket(n) - n if self._few_sizes and n else 0
        if not missing:
            return self._work(*rows)
        padded = (torch.cat([tensor, tensor[:1].expand(missing, *tensor.shape[1:])]) for tensor in rows)
        return tuple(tensor[:n] for tensor in self._work(*padded))

    def _bucket(self, n: int) -> int:
        """The size to which n rows are padded: the full one times a power of 1/2, or three quarters of that."""
        size = self.size
        while size // 2 >= max(n, _SMALLEST_GRAPH):
            size //= 2
        return 3 * size // 4 if n <= 3 * size // 4 else size

    def _record(self, bucket: int, rows: Rows) -> Work:
        # Always a copy, also of one row: replays write here, and must not write to the caller's tensors.
        inputs = [tensor[:1].repeat(bucket, *[1] * (tensor.dim() - 1)) for tensor in rows]

        def fill(rows: Rows) -> None:
            for buffer, tensor in zip(inputs, rows, strict=True):
                buffer[: len(tensor)].copy_(tensor)

        outputs: list[Rows] = []

        def work() -> None:
            outputs.append(self._work(*inputs))
            if len(outputs) == 1:  # Recorded on other inputs, so that a graph that does nothing cannot seem to agree.
                for buffer in inputs:
                    buffer.zero_()

        fill(rows)
        try:
            replay = captured(work, inputs[0].device, warm_ups=1, pool=self._pool)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            warnings.warn(f"The model cannot be captured in a CUDA graph and runs eagerly: {error}", stacklevel=2)
            self._graphs = False  # no other size can be recorded either, and a failed recording is not free
            return self._eager
        first, static = outputs
        fill(rows)
        replay()
        if not _agree(first[0][: len(rows[0])], static[0][: len(rows[0])]):
            return self._eager

        def run(*rows: Tensor) -> Rows:
            fill(rows)
            replay()
            return tuple(tensor[: len(rows[0])].clone() for tensor in static)

        return run

    def _halve(self) -> None:
        if self.size == 1:
            raise torch.OutOfMemoryError("Not even a single example fits into the device's memory.")
        self.size = (self.size + 1) // 2
        self.release()
        torch.cuda.empty_cache()
        warnings.warn(f"A batch did not fit into memory; continuing with {self.size} examples at a time.", stacklevel=2)


def _agree(a: Tensor, b: Tensor) -> bool:
    """Whether logits are the same up to the order of a sum."""
    left, right = a.double(), b.double()
    coarse = a.dtype in (torch.bfloat16, torch.float16)
    return bool(((left - right).abs() <= (2e-2 if coarse else 1e-4) * left.abs().amax()).all())


def in_batches(work: Callable[..., Tensor], *tensors: Tensor, size: int) -> Tensor:
    """Concatenate `work` over batches of the tensors' first dimension.

    The size is halved, with a warning, where a batch does not fit into memory.

    Example:
        >>> in_batches(lambda x: 2 * x, torch.arange(5), size=2)
        tensor([0, 2, 4, 6, 8])
    """
    return Batched(lambda *rows: (work(*rows),), size)(*tensors)[0]
