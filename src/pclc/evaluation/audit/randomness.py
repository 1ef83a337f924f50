"""Models that are random themselves are scored by expected errors over fresh draws."""

import torch
from torch import Tensor

from pclc.attacks.decide import is_fooled
from pclc.attacks.types import Model
from pclc.execution import Execution

DRAWS = 20  # of a score
GAIN = 0.01  # of the mean score; EOT is doubled until it gains less


def score(model: Model, x: Tensor, y: Tensor, execution: Execution, draws: int = DRAWS) -> Tensor:
    """(N,) shares of `draws` fresh passes in which the model is right; passes are as large as `execution` says."""
    right = torch.stack([~is_fooled(model, x, y, execution=execution) for _ in range(draws)])
    return right.double().mean(0)
