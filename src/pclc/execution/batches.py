"""Work done in batches that fit into memory."""

import warnings
from collections.abc import Callable

import torch
from torch import Tensor


def in_batches(work: Callable[..., Tensor], *tensors: Tensor, size: int) -> Tensor:
    """Concatenate `work` over batches of the tensors' first dimension; a batch that does not fit is halved, aloud.

    Example:
        >>> in_batches(lambda x: 2 * x, torch.arange(5), size=2)
        tensor([0, 2, 4, 6, 8])
    """
    n = len(tensors[0])
    results: list[Tensor] = []
    start = 0
    while start < n or not results:  # an empty input still goes through once, for the shape of its result
        try:
            results.append(work(*(tensor[start : start + size] for tensor in tensors)))
        except torch.OutOfMemoryError:
            if size == 1:
                raise
            size = (size + 1) // 2
            torch.cuda.empty_cache()
            warnings.warn(f"A batch did not fit into memory; going on with {size} examples at a time.", stacklevel=2)
        else:
            start += size
    return torch.cat(results)
