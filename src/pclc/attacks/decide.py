"""Whether examples fool a model, for whoever has examples and wants to know."""

import torch
from torch import Tensor

from pclc.attacks.frozen import frozen
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim
from pclc.execution import Execution


def is_fooled(model: Model, x: Tensor, y: Tensor, targeted: bool = False, execution: Execution | None = None) -> Tensor:
    """(N,) flags: the predicted class is not `y`, or is `y` where the attack was targeted.

    Decided by a forward pass in IEEE float32 (float64 where x is), and where the two largest logits are nearly equal by
    another one in float64. The model runs in eval mode and comes back as it was.

    Example:
        >>> is_fooled(torch.nn.Identity(), torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0, 0]))
        tensor([ True, False])
    """
    execution = (execution or Execution()).for_attacks(x.device)
    with torch.inference_mode(False), torch.no_grad(), frozen(model), Victim(model, execution) as victim:
        return victim.is_fooled(x.detach().clone(), y.clone(), targeted)
