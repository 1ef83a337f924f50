"""One training step, as one function without arguments: eager, compiled, or replayed from a CUDA graph."""

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pclc.data.feed import Feed
from pclc.execution import Execution, captured
from pclc.training.average import Average
from pclc.training.batch_loss import Batch, BatchLoss


class Step:
    """Takes the next batch and makes one update for each criterion; keeps running totals on the device.

    All of it, including crafting and averaging, reads and writes the same tensors each time and never waits for the
    device, so that it can be captured. A batch that does not fit into memory is split into parts whose gradients add up
    to the same update.
    """

    def __init__(
        self,
        model: nn.Module,
        batch_loss: BatchLoss,
        criteria: Sequence[nn.Module],
        optimizer: torch.optim.Optimizer,
        feed: Feed,
        execution: Execution,
        capture: bool,
        average: Average | None = None,
    ) -> None:
        self._batch_loss = batch_loss
        self._criteria = criteria
        self._optimizer = optimizer
        self._feed = feed
        self._execution = execution
        self._average = average
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
        while not self._fits():
            self._halve()
            self._feed.step_back()

    def _fits(self) -> bool:
        """Make one step; False where it needs too much memory."""
        try:
            self.run()
        except torch.OutOfMemoryError:
            return False  # not handled here: until this returns, the error keeps all that the failed pass had made
        return True

    def _update(self) -> None:
        x, y = self._feed.next_batch()
        x = self._execution.lay_out(x)
        batch = Batch(x, y, self._feed.index, self._feed.epoch)
        totals = []
        for criterion in self._criteria:
            self._optimizer.zero_grad(set_to_none=True)
            for part in batch.parts(self._parts):
                loss, logits = self._batch_loss(criterion, part)
                with self._execution.float32():
                    (loss * (len(part.y) / len(y))).backward()  # type: ignore[no-untyped-call]
                if criterion is self._criteria[0]:
                    totals.append(_totals(loss.detach(), logits.detach(), part.y))
            self._optimizer.step()
        if self._average is not None:
            self._average.update()
        self._totals += torch.stack(totals).sum(0)  # at the end, so that parts of a step that failed do not count

    def _capture(self, model: nn.Module) -> None:
        """Record the step. Recording runs it, so the state of model, optimizer and average is restored afterwards."""
        tensors = [*model.parameters(), *model.buffers(), *(self._average.tensors if self._average else ())]
        before = [tensor.detach().clone() for tensor in tensors]
        kept = {key: tensor.clone() for key, tensor in _optimizer_tensors(self._optimizer).items()}
        fits = True
        try:
            self.run = captured(self._update, self._execution.torch_device)
        except torch.OutOfMemoryError:
            fits = False
        except RuntimeError as error:
            warnings.warn(f"The step cannot be captured in a CUDA graph and runs eagerly: {error}", stacklevel=2)
            self.run = self._update
        with torch.no_grad():
            for tensor, value in zip(tensors, before, strict=True):
                tensor.copy_(value)
            for key, tensor in _optimizer_tensors(self._optimizer).items():
                if key in kept:
                    tensor.copy_(kept[key])
                else:  # made by the first update
                    tensor.zero_()
        self._totals.zero_()
        if not fits:
            self._halve()
            self._capture(model)

    def _halve(self) -> None:
        if self._parts * 2 > self._feed.batch_size:
            raise torch.OutOfMemoryError("Not even a single example fits into the device's memory.")
        self._parts *= 2
        self._optimizer.zero_grad(set_to_none=True)
        torch.cuda.empty_cache()
        warnings.warn(
            f"A batch did not fit into memory and is processed in {self._parts} parts. The update is the same, but "
            "BatchNorm sees each part on its own.",
            stacklevel=2,
        )


def _totals(loss: Tensor, logits: Tensor, y: Tensor) -> Tensor:
    correct = (logits.argmax(1) == y).sum()
    count = torch.full_like(loss, len(y), dtype=torch.float64)  # half precision would round it
    return torch.stack([loss.double() * len(y), correct.double(), count])


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[tuple[int, str], Tensor]:
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return {
        (position, name): value
        for position, parameter in enumerate(parameters)
        for name, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }
