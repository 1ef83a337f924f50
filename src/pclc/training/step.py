"""One training step, as one function without arguments: eager, compiled, or replayed from a CUDA graph."""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pclc.data.feed import Feed
from pclc.execution import Execution, captured


class Step:
    """Takes the next batch and makes one update for each criterion; keeps running totals on the device.

    Where a batch does not fit into memory it is worked off in halves whose gradients add up to the same update.
    """

    def __init__(
        self,
        model: nn.Module,
        forward: Callable[[Tensor], Tensor],
        criteria: Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        feed: Feed,
        execution: Execution,
        capture: bool,
    ) -> None:
        self._forward = forward
        self._criteria = criteria
        self._optimizer = optimizer
        self._feed = feed
        self._execution = execution
        self._parts = 1
        device = execution.torch_device
        self._totals = torch.zeros(3, dtype=torch.float64, device=device)  # loss, correct, examples
        self.run: Callable[[], None] = self._update
        if capture:
            self._capture(model)

    def take_totals(self) -> Tensor:
        """Sum of losses, number of correct answers and number of examples since the last call."""
        totals = self._totals.clone()
        self._totals.zero_()
        return totals

    def __call__(self) -> None:
        """Make one step."""
        try:
            self.run()
        except torch.OutOfMemoryError:
            self._halve()
            self._feed.step_back()
            self()

    def _update(self) -> None:
        x, y = self._feed.next_batch()
        x = x.contiguous(memory_format=self._execution.memory_format)
        for criterion in self._criteria:
            self._optimizer.zero_grad(set_to_none=True)
            for part_x, part_y in zip(x.chunk(self._parts), y.chunk(self._parts), strict=True):
                with self._execution.arithmetic():
                    logits = self._forward(part_x)
                    loss = criterion(logits, part_y)
                (loss * (len(part_y) / len(y))).backward()
                if criterion is self._criteria[0]:
                    self._add(loss.detach(), logits.detach(), part_y)
            self._optimizer.step()

    def _add(self, loss: Tensor, logits: Tensor, y: Tensor) -> None:
        correct = (logits.argmax(1) == y).sum()
        self._totals += torch.stack([loss.double() * len(y), correct.double(), torch.full_like(loss, len(y)).double()])

    def _capture(self, model: nn.Module) -> None:
        """Record the step. Recording runs it, so model and optimizer are put back to where they were."""
        tensors = [*model.parameters(), *model.buffers()]
        before = [tensor.detach().clone() for tensor in tensors]
        fresh = not self._optimizer.state
        state = {} if fresh else _optimizer_tensors(self._optimizer)
        kept = {key: tensor.clone() for key, tensor in state.items()}
        try:
            self.run = captured(self._update)
        except torch.OutOfMemoryError:
            self._halve()
            self._capture(model)
            return
        except RuntimeError as error:
            warnings.warn(f"The step cannot be captured in a CUDA graph and runs eagerly: {error}", stacklevel=2)
            self.run = self._update
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
            for key, tensor in _optimizer_tensors(self._optimizer).items():
                if fresh:
                    tensor.zero_()
                else:
                    tensor.copy_(kept[key])
        self._totals.zero_()

    def _halve(self) -> None:
        if self._parts * 2 > self._feed.batch_size:
            raise torch.OutOfMemoryError("Not even a single example fits into the device's memory.")
        self._parts *= 2
        self._optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        warnings.warn(
            f"A batch did not fit into memory; it is worked off in {self._parts} parts. The update is the same, but "
            "BatchNorm sees the parts.",
            stacklevel=2,
        )


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[tuple[int, str], Tensor]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        (position, name): value
        for position, parameter in enumerate(parameters)
        for name, value in optimizer.state[parameter].items()
        if isinstance(value, Tensor)
    }
