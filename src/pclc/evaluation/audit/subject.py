"""The model as the audit found it, and as its attacks ask it."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pclc.attacks.frozen import frozen
from pclc.attacks.inputs import are_probabilities, check_logits, explain_types
from pclc.attacks.suspicions import is_dynamic, is_random
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim
from pclc.evaluation.audit.breaks import Break, has_gradient, mend
from pclc.evaluation.traps import MIXED, in_train_mode, memory, mixing
from pclc.execution import Execution, ieee_fp32, in_batches

_TINY = 1e-37  # log of a probability that float32 has lost


@dataclass(frozen=True, eq=False)
class Subject:
    """What there is to attack.

    Attributes:
        model: as it was given; it decides all outcomes. One that mixes the images of a batch sees each of them twice.
        craft: what attacks climb: logarithms where the model gives probabilities, breaks of the gradient mended.
        classes: number of them.
        training: modules that came in train mode.
        probabilities: the model returns probabilities.
        random: passes over the same images differ, or over what lies between two of them, where attacks lead.
        mixing: how much other images, in the same batch or before it, change the logits of one, as a share of their
            size; 0 where random.
        dynamic: the forward pass asks for derivatives.
        breaks: places that let no gradient through.
        differentiable: `craft` has a gradient.
        gap: median distance of the two largest logits.
    """

    model: Model
    craft: Model
    classes: int
    training: int
    probabilities: bool
    random: bool
    mixing: float
    dynamic: bool
    breaks: tuple[Break, ...]
    differentiable: bool
    gap: float


class LogProbabilities(nn.Module):
    """Logarithms of what a model returns; they order the classes as the model does."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """log f."""
        return self.model(x).clamp(min=_TINY).log()


class Doubled(nn.Module):
    """A model that sees each image twice: what it takes over a batch stays, and no batch is of one image alone.

    BatchNorm on batch statistics refuses a single row.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """The logits of the first ones."""
        logits: Tensor = self.model(torch.cat([x, x]))
        return logits[: len(x)]


class Unmoved(nn.Module):
    """A model that always has a gradient: zero where its own is missing, so that an attack stands still there."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """The model's own values."""
        logits = self.model(x)
        return logits + 0 * x.flatten(1).sum(1, keepdim=True) if x.requires_grad else logits


def look_at_model(model: Model, x: Tensor, y: Tensor, execution: Execution) -> Subject:
    """Look at a model with a few images x of classes y.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 3), nn.Softmax(1))
        >>> subject = look_at_model(model, torch.rand(8, 4), torch.zeros(8, dtype=torch.int64), Execution())
        >>> subject.probabilities, subject.random, type(subject.craft).__name__
        (True, False, 'LogProbabilities')
    """
    training = in_train_mode(model)
    settings = execution.for_attacks(x.device)
    with torch.no_grad(), ieee_fp32(), frozen(model), Victim(model, settings) as victim:
        with explain_types(model, x):
            logits = victim.exact_logits(x)
        check_logits(logits, len(x), y)
        remembered = memory(victim, x)
        random = remembered <= MIXED and is_random(victim, torch.cat([_between(x), x]))
        mixed = 0.0 if random else max(mixing(victim, x), remembered)
    if mixed > MIXED:
        model = Doubled(model)
    with torch.no_grad(), frozen(model):
        dynamic = is_dynamic(model, x)
    probabilities = are_probabilities(logits)
    size = settings.resolved_batch_size
    mended, breaks = mend(model, x, y, size)
    craft = LogProbabilities(mended) if probabilities else mended
    with torch.no_grad(), frozen(craft):
        top = in_batches(lambda rows: craft(rows.clone()), x, size=size).topk(2, dim=1).values
    gap = float((top[:, 0] - top[:, 1]).nanmedian())  # NaN where both are infinite
    about = (training, probabilities, random, mixed, dynamic, breaks)
    return Subject(model, craft, logits.shape[1], *about, has_gradient(craft, x[:size]), gap)


def _between(x: Tensor) -> Tensor:
    """Blends of each image with the next, more of it each time: a model may be random only where it is unsure."""
    share = torch.linspace(0, 1, len(x) + 2, dtype=x.dtype, device=x.device)[1:-1]
    return x.lerp(x.roll(1, 0), share.reshape(-1, *[1] * (x.dim() - 1)))
