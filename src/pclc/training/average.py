"""Weights averaged over the steps of a run."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

# Until the average has seen enough steps it follows the weights more closely: min(decay, (1 + t) / (10 + t)) at step t,
# as TensorFlow's ExponentialMovingAverage does, so that it is not held back by the weights a run began with.
_RAMP = 10


class Average:
    r"""The exponential moving average of a model's parameters and BatchNorm statistics (Polyak and Juditsky, 1992).

    $$\bar w \leftarrow d_t\, \bar w + (1 - d_t)\, w, \qquad d_t = \min\Big(d, \frac{1 + t}{10 + t}\Big)$$

    `update` reads and writes the same tensors each time, so that it can be part of a captured step. Whole numbers, such
    as BatchNorm's count of batches, are copied.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._decay = decay
        live = list(dict.fromkeys([*model.parameters(), *model.buffers()]))
        self._live = [tensor.detach() for tensor in live if tensor.is_floating_point()]
        self._counts = [tensor for tensor in live if not tensor.is_floating_point()]
        device = live[0].device
        self._steps = torch.zeros((), dtype=torch.float32, device=device)
        self._average = [tensor.clone() for tensor in self._live]
        self._average_counts = [tensor.clone() for tensor in self._counts]

    @property
    def tensors(self) -> list[Tensor]:
        """All that an update changes, in a fixed order."""
        return [self._steps, *self._average, *self._average_counts]

    @torch.no_grad()
    def update(self) -> None:
        """Take the model's present weights in."""
        self._steps += 1
        weight = 1 - ((1 + self._steps) / (_RAMP + self._steps)).clamp(max=self._decay)
        difference = torch._foreach_sub(self._live, self._average)
        torch._foreach_mul_(difference, weight)
        torch._foreach_add_(self._average, difference)
        for average, live in zip(self._average_counts, self._counts, strict=True):
            average.copy_(live)

    def load(self, tensors: list[Tensor]) -> None:
        """Go on from the `tensors` of an earlier run."""
        for mine, value in zip(self.tensors, tensors, strict=True):
            mine.copy_(value)

    @torch.no_grad()
    def store(self) -> None:
        """Make the average the model's weights."""
        for live, average in zip([*self._live, *self._counts], [*self._average, *self._average_counts], strict=True):
            live.copy_(average)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """The model with averaged weights, and with its own again afterwards."""
        own = [tensor.clone() for tensor in [*self._live, *self._counts]]
        self.store()
        try:
            yield
        finally:
            for live, value in zip([*self._live, *self._counts], own, strict=True):
                live.copy_(value)
