"""What one run has cost: passes, and gradients that were exactly zero."""

from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class Cost:
    """Counts in examples: a pass over a batch of 10 counts 10. The zeros are summed on the device, without a wait."""

    forwards: int = 0
    backwards: int = 0
    gradients: int = 0
    zeros: Tensor = field(default_factory=lambda: torch.zeros((), dtype=torch.int64, device="cpu"))

    def add_gradients(self, zero: Tensor, forwards: int = 1, backwards: int = 1) -> None:
        """Note the passes for each example, and (N,) flags, true where its whole gradient was exactly zero."""
        self.forwards += forwards * len(zero)
        self.backwards += backwards * len(zero)
        self.gradients += len(zero)
        self.zeros = self.zeros.to(zero.device) + zero.sum()

    @property
    def zero_gradient_share(self) -> float | None:
        """The share of gradients that were exactly zero; None where no gradient was asked for."""
        return self.zeros.item() / self.gradients if self.gradients else None
