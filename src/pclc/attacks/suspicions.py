"""What makes a standard attack's figure doubtful, seen in the model before it is attacked."""

import cProfile
import sys
from types import FrameType

import torch
from torch import Tensor

from pclc.attacks.types import Model
from pclc.attacks.victim import Victim

_PASSES = 5
# Of a few images: a model that draws one of two networks once a pass gives the same one five times in a row too often.
_MORE_PASSES, _FEW = 20, 8
_SHARED = 2.5  # as a ratio of variances: beyond what chance gives once in a thousand times
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
    return (len(x) > _FEW and _differ(victim, x, _PASSES)) or _differ(victim, x[:_FEW], _MORE_PASSES)


def shares_draws(victim: Victim, x: Tensor) -> bool:
    """Whether images of a pass share a draw of a random model, if only in part: their scores are not independent then.

    Told by copies of images: draws of their own make means over a pass differ as little as means of as many draws do.

    Example:
        >>> from pclc.execution import Execution
        >>> execution = Execution().for_attacks(torch.device("cpu"))
        >>> each = Victim(lambda x: x + torch.rand_like(x), execution)
        >>> one = Victim(lambda x: x + torch.rand(3), execution)
        >>> shares_draws(each, torch.rand(4, 3)), shares_draws(one, torch.rand(4, 3))
        (False, True)
    """
    some = x[:_FEW]
    copies = some.repeat_interleave(_FEW, 0)
    passes = torch.stack([victim.exact_logits(copies) for _ in range(_MORE_PASSES)]).double()
    logits = passes.reshape(_MORE_PASSES, len(some), _FEW, -1)
    between, within = _FEW * logits.mean(2).var(0).sum(), logits.var(2).mean(0).sum()
    return bool(between > _SHARED * within)


def _differ(victim: Victim, x: Tensor, count: int) -> bool:
    passes = torch.stack([victim.exact_logits(x) for _ in range(count)])
    unit = passes / (torch.linalg.vector_norm(passes, dim=2, keepdim=True) + 1e-10)
    apart = torch.linalg.vector_norm(unit[:, None] - unit[None], dim=3)
    return bool((apart > _SAME).any() or (passes.argmax(2) != passes[0].argmax(1)).any())


def is_dynamic(model: Model, x: Tensor, size: int = _FEW) -> bool:
    """Whether a forward pass asks for derivatives, as a model does that optimises something at test time.

    The images are looked at `size` at a time, since all of them need not fit into memory.

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
        for some in torch.split(x, size):
            model(some.clone())  # into which it may write
    finally:
        sys.setprofile(before if callable(before) else None)
        if isinstance(before, cProfile.Profile):  # which is no function, and is asked in another way
            before.enable()
    return seen
