"""What the processes that `torchrun` started tell each other."""

from typing import TypeVar

import torch

Value = TypeVar("Value")


def gather(value: Value, count: int) -> list[Value]:
    """The value of every process, in each of them, by rank; what can be pickled, with tensors on the CPU."""
    if count == 1:
        return [value]
    # Objects travel over gloo whatever the device, since they live on the CPU.
    group = None if torch.distributed.get_backend() == "gloo" else torch.distributed.new_group(backend="gloo")
    everybody: list[Value] = [value] * count
    torch.distributed.all_gather_object(everybody, value, group=group)
    if group is not None:
        torch.distributed.destroy_process_group(group)
    return everybody
