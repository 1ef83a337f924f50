"""Weights averaged over the steps of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# In early steps the average follows the weights more closely, as TensorFlow's ExponentialMovingAverage does, so that it
# is not held back by the initial weights.
_RAMP = 10


class Average:
    r"""The exponential moving average of a model's parameters and BatchNorm statistics (Polyak and Juditsky, 1992).

    $$\bar w \leftarrow d_t\, \bar w + (1 - d_t)\, w, \qquad d_t = \min\Big(d, \frac{1 + t}{10 + t}\Big)$$

    `update` reads and writes the same tensors each time, so that it can be part of a captured step. Integers, such as
    BatchNorm's count of batches, are copied, and so is a tensor with infinities, such as a mask: inf - inf is NaN.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        tensors = dict.fromkeys([*model.parameters(), *model.buffers()])
        averaged, copied = list[Tensor](), list[Tensor]()
        for tensor in tensors:
            mean = tensor.is_floating_point() and bool(tensor.isfinite().all())
            (averaged if mean else copied).append(tensor.detach())
        self._live, self._averaged = [*averaged, *copied], len(averaged)
        self._average = [tensor.clone() for tensor in self._live]
        self._steps = torch.zeros((), dtype=torch.float32, device=self._live[0].device)

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that an update changes, in a fixed order."""
        return [self._steps, *self._average]

    @torch.no_grad()
    def update(self) -> None:
        """Take in the model's current weights."""
        self._steps += 1
        weight = 1 - ((1 + self._steps) / (_RAMP + self._steps)).clamp(max=self._decay)
        n = self._averaged
        difference = torch._foreach_sub(self._live[:n], self._average[:n])
        torch._foreach_mul_(difference, weight)
        torch._foreach_add_(self._average[:n], difference)
        for average, live in zip(self._average[n:], self._live[n:], strict=True):
            average.copy_(live)

    def load(self, tensors: list[Tensor]) -> None:
        """Continue from the `tensors` of an earlier run."""
        for mine, value in zip(self.tensors, tensors, strict=True):
            mine.copy_(value)

    @torch.no_grad()
    def store(self) -> None:
        """Make the average the model's weights."""
        for live, average in zip(self._live, self._average, strict=True):
            live.copy_(average)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the model the averaged weights, and its own again afterwards."""
        own = [tensor.clone() for tensor in self._live]
        self.store()
        try:
            yield
        finally:
            for live, value in zip(self._live, own, strict=True):
                live.copy_(value)
