"""What makes a standard attack's figure doubtful, seen in the model before it is attacked."""

import cProfile
import sys
from types import FrameType

import torch
from torch import Tensor

from pclc.attacks.types import Model
from pclc.attacks.victim import Victim

_PASSES = 5
_SAME = 1e-4  # distance of logits of length 1, beyond what rounding explains
_DERIVATIVES = {torch.autograd.grad.__code__, torch.autograd.backward.__code__}


def is_random(victim: Victim, x: Tensor) -> bool:
    """Whether passes over the same images differ: in a prediction, or by more than rounding.

    Example:
        >>> from pclc.execution import Execution
        >>> noisy = Victim(lambda x: x + torch.rand_like(x), Execution().for_attacks(torch.device("cpu")))
        >>> is_random(noisy, torch.rand(4, 3))
        True
    """
    passes = torch.stack([victim.exact_logits(x) for _ in range(_PASSES)])
    unit = passes / (torch.linalg.vector_norm(passes, dim=2, keepdim=True) + 1e-10)
    apart = torch.linalg.vector_norm(unit[:, None] - unit[None], dim=3).max() > _SAME
    return bool(apart | (passes.argmax(2) != passes[0].argmax(1)).any())


def is_dynamic(model: Model, x: Tensor) -> bool:
    """Whether a forward pass asks for derivatives, as a model does that optimises something at test time.

    Example:
        >>> is_dynamic(torch.nn.Linear(2, 2), torch.rand(1, 2))
        False
    """
    seen = False

    def watch(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        seen |= event == "call" and frame.f_code in _DERIVATIVES

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        model(x)
    finally:
        sys.setprofile(before if callable(before) else None)
        if isinstance(before, cProfile.Profile):  # which is no function, and is asked in another way
            before.enable()
    return seen
