"""The path of PGD, step by step: losses, gradients of every objective, and who was fooled on the way."""

from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks import PGD, get_objective
from pclc.attacks.balls import project, random_point
from pclc.attacks.frozen import frozen
from pclc.attacks.rules import steepest
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim, is_success
from pclc.evaluation.audit.subject import Unmoved
from pclc.execution import Execution

OBJECTIVES = ("ce", "margin", "dlr", "probability-margin")
_DENORMAL = torch.finfo(torch.float32).tiny
_EVERY = 8  # steps from one look at all objectives to the next


class Trace(NamedTuple):
    """One run of PGD with its whole budget.

    Attributes:
        values: (T + 1, N) of the attack's objective at every iterate.
        fooled: (T + 1, N) flags at every iterate.
        vanished: for each objective the share of gradients, over examples and looks along the path, whose every entry
            is zero or denormal, of an example that is not fooled there.
    """

    values: Tensor
    fooled: Tensor
    vanished: dict[str, float]


def trace(model: Model, x: Tensor, y: Tensor, attack: PGD, seed: int, execution: Execution) -> Trace:
    """Follow the attack on examples x of classes y. A model without a gradient is followed where it stays.

    Example:
        >>> attack = PGD(eps=0.1, alpha=0.01, steps=20)
        >>> path = trace(torch.nn.Linear(4, 5), torch.rand(3, 4), torch.tensor([0, 1, 2]), attack, 0, Execution())
        >>> path.values.shape, path.vanished["margin"]
        (torch.Size([21, 3]), 0.0)
    """
    goal = get_objective(attack.objective)
    rule = steepest(attack.alpha, attack.norm)
    x_adv = random_point(x, attack.eps, attack.norm, seed, torch.arange(len(x), device=x.device), draw=0)
    values, fooled, memory = [], [], x.new_empty(len(x), 0)
    gone: dict[str, list[Tensor]] = {}
    craft = Unmoved(model)
    settings = execution.for_attacks(x.device)
    with torch.inference_mode(False), torch.no_grad(), frozen(craft), Victim(craft, settings) as victim:
        classes = victim.logits(x[:1]).shape[1]
        objectives = {name: get_objective(name) for name in OBJECTIVES if name != "dlr" or classes >= 3}
        for t in range(attack.steps + 1):
            if t % _EVERY == 0:
                for name, objective in objectives.items():
                    here = victim.gradient(objective, x_adv, y)
                    # Who is fooled needs no gradient; DLR has none there where two classes are above the true one.
                    needed = ~is_success(here.logits, y, targeted=False)
                    gone.setdefault(name, []).append(needed & _vanished(here.grad))
            slope = victim.gradient(goal, x_adv, y)
            values.append(slope.value)
            fooled.append(is_success(slope.logits, y, targeted=False))
            update, memory = rule(slope.grad, memory, t)
            x_adv = project(x_adv + update, x, attack.eps, attack.norm)
    shares = {name: float(torch.cat(flags).double().mean()) for name, flags in gone.items()}
    return Trace(torch.stack(values), torch.stack(fooled), shares)


def _vanished(grad: Tensor) -> Tensor:
    return grad.flatten(1).abs().amax(1) < _DENORMAL
