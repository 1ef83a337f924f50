"""Training over several processes, as `torchrun` starts them: one process has no group and no wrapper."""

import atexit
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel


@dataclass(frozen=True)
class Processes:
    """This process among its peers."""

    rank: int = 0
    count: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes files and shows progress."""
        return self.rank == 0

    def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
        """The model with gradients averaged over processes, and on CUDA with BatchNorm over the whole batch."""
        if self.count == 1:
            return model
        if device.type == "cuda":
            model = nn.SyncBatchNorm.convert_sync_batchnorm(model)  # type: ignore[no-untyped-call]
        return DistributedDataParallel(model, device_ids=[device] if device.type == "cuda" else None)

    def share_buffers(self, model: nn.Module) -> None:
        """Give every process the buffers of the first one: on the CPU each has BatchNorm statistics of its own."""
        if self.count > 1:
            for buffer in model.buffers():
                torch.distributed.broadcast(buffer, 0)

    def sum(self, values: Tensor) -> Tensor:
        """The sum over processes."""
        if self.count > 1:
            torch.distributed.all_reduce(values)
        return values


@contextmanager
def processes(device: torch.device) -> Iterator[Processes]:
    """Join the group that `torchrun` announces in the environment, if any, and stay in it until the program ends.

    Joining again after leaving would wait forever, because `torchrun` keeps what the first group stored.
    """
    count = int(os.environ.get("WORLD_SIZE", "1"))
    if count == 1:
        yield Processes()
        return
    if device.type == "cuda" and device.index is not None:
        torch.cuda.set_device(device)
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
        atexit.register(_leave)
    yield Processes(torch.distributed.get_rank(), count)


def _leave() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
