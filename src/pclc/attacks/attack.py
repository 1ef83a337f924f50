"""What every attack is: settings that can be printed and compared, and one way to run them."""

import dataclasses
import inspect
import re
import warnings
from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from pclc.attacks.frozen import frozen
from pclc.attacks.inputs import (
    check_examples,
    check_logits,
    check_randomness,
    explain_types,
    warn_of_probabilities,
    warn_of_train_mode,
)
from pclc.attacks.notices import ZeroGradientWarning
from pclc.attacks.types import STOPS, Model, Stop
from pclc.attacks.validate import check_choice, check_flag
from pclc.attacks.victim import Victim
from pclc.execution import Execution


@dataclass(frozen=True, eq=False)
class AttackResult:
    """What a run gives.

    Attributes:
        x_adv: (N, ...), inside the budget and the box.
        success: (N,) flags: fooled, as a forward pass of `x_adv` in IEEE float32 decides, in float64 where the two
            largest logits are nearly equal.
        forwards: forward passes of the model, counted in examples, with those before and after crafting.
        backwards: backward passes, counted in examples.
        zero_gradient_share: share of the gradients, one per example and step, that were exactly zero in every entry;
            None where the attack uses none.
    """

    x_adv: Tensor
    success: Tensor
    forwards: int
    backwards: int
    zero_gradient_share: float | None


@dataclass(frozen=True, repr=False)
class Attack(ABC):
    """The settings that all attacks share, and the way they run.

    Args:
        targeted: `y` is the class to reach, and success means that it is predicted; otherwise `y` is the true class,
            and success means that another one is.
        stop: "success" leaves an example alone as soon as it is fooled, even before the attack begins; "never" spends
            the whole budget and returns the last iterate, as tables in papers do. Both go through the same iterates, so
            that "success" fools all that "never" fools, up to the rounding of a different batch.
    """

    name: ClassVar[str]

    _: KW_ONLY
    targeted: bool = False
    stop: Stop = "success"

    def __new__(cls, *args: object, **settings: object) -> Self:
        """Help those who come from a library whose attacks are made with the model."""
        _, *expected = inspect.signature(cls.__init__).parameters.values()
        kinds = [inspect.formatannotation(one.annotation) for one in expected[:1]]  # as text, whatever it was
        if args and isinstance(args[0], nn.Module) and re.match("'?(float|int)", "".join(kinds)):
            raise TypeError(
                f"Expected `{expected[0].name}` of {cls.__name__} to be a number, but got a model. The model is an "
                "argument of the call: x_adv = attack(model, x, y)."
            )
        return super().__new__(cls)

    def __post_init__(self) -> None:
        check_flag("targeted", self.targeted)
        check_choice("stop", self.stop, STOPS)

    def __call__(
        self,
        model: Model,
        x: Tensor,
        y: Tensor,
        seed: int = 0,
        index: Tensor | None = None,
        execution: Execution | None = None,
    ) -> Tensor:
        """Return `run(...).x_adv`, without the last pass, which decides what is fooled."""
        return self._run(model, x, y, seed, index, execution)[0]

    def run(
        self,
        model: Model,
        x: Tensor,
        y: Tensor,
        seed: int = 0,
        index: Tensor | None = None,
        execution: Execution | None = None,
    ) -> AttackResult:
        """Attack the examples and report how it went.

        The model runs in eval mode and is left as it was. Its logits on the clean images are checked first.

        Args:
            model: images (N, ...) to logits (N, K).
            x: (N, ...) float32 or float64 in [0, 1]; any number of examples, which are batched inside.
            y: (N,) int64, the true classes, or the classes to reach where `targeted`.
            seed: of all random numbers.
            index: (N,) int64, the images' places in their data set, on which random numbers depend; None: 0 ... N - 1.
            execution: precision of crafting, batch size, compilation, CUDA graphs; the device is that of x.
        """
        x_adv, success, victim = self._run(model, x, y, seed, index, execution, decide=True)
        cost = victim.cost
        return AttackResult(x_adv, success, cost.forwards, cost.backwards, cost.zero_gradient_share)

    def _run(
        self,
        model: Model,
        x: Tensor,
        y: Tensor,
        seed: int,
        index: Tensor | None,
        execution: Execution | None,
        decide: bool = False,
    ) -> tuple[Tensor, Tensor, Victim]:
        """One level below `run` and `__call__`, so that warnings point at the caller of either."""
        check_examples(x, y)
        index = check_randomness(seed, index, x)
        if not isinstance(execution, Execution | None):
            raise TypeError(f"Expected `execution` to be an Execution, but got a {type(execution).__name__}.")
        execution = (execution or Execution()).for_attacks(x.device)
        with torch.inference_mode(False), torch.no_grad(), frozen(model), Victim(model, execution) as victim:
            x_adv, y, index = x.detach().clone(), y.clone(), index.clone()
            success = torch.zeros_like(y, dtype=torch.bool)
            if not len(x):
                return x_adv, success, victim
            # To see that the model is a classifier of these images a batch is enough.
            some = x_adv[: execution.resolved_batch_size]
            with explain_types(model, some):
                first = victim.logits(some)
            check_logits(first, len(some), y)
            warn_of_probabilities(first)
            warn_of_train_mode(model)
            todo = ~success
            if self._spares_wrong:
                clean = torch.cat([first, victim.logits(x_adv[len(some) :])]) if len(some) < len(x) else first
                todo = ~victim.confirm(clean, x_adv, y, self.targeted)
            if todo.all():
                x_adv = self._perturb(victim, x_adv, y, seed, index)
            elif todo.any():
                x_adv[todo] = self._perturb(victim, x_adv[todo], y[todo], seed, index[todo])
            if decide:
                success = victim.is_fooled(x_adv, y, self.targeted)
        share = victim.cost.zero_gradient_share
        if share:
            warnings.warn(
                f"{share:.1%} of the gradients of {self} were exactly zero and moved nothing, so its success rate says "
                f"little about the model. {self._other_gradients()}",
                ZeroGradientWarning,
                stacklevel=3,
            )
        return x_adv, success, victim

    @property
    def _spares_wrong(self) -> bool:
        """Whether images that are wrong without an attack are left alone."""
        return self.stop == "success"

    def _other_gradients(self) -> str:
        """What to try where gradients are zero."""
        attack = getattr(self, "attack", self)  # EOT has one inside
        if str(getattr(attack, "objective", "")).startswith("ce"):
            return 'Try a margin objective, or a logit scale such as objective="ce*0.01".'
        return "Try BPDA where a module has no useful gradient, or an attack without gradients, such as Square."

    @abstractmethod
    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        """Return the adversarial examples of checked inputs."""

    def __str__(self) -> str:
        """The attack as `parse_attack` reads it."""
        return f"{self.name}({self._settings()})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._settings()})"

    def _settings(self) -> str:
        """What differs from the defaults, the attack's own settings first."""
        return ", ".join(
            f"{field.name}={_literal(getattr(self, field.name))}"
            for field in sorted(dataclasses.fields(self), key=lambda field: bool(field.kw_only))
            if getattr(self, field.name) != field.default
        )


def _literal(value: object) -> str:
    """A value as it is written in the text of an attack."""
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, tuple):  # of attacks
        return "(" + ", ".join(map(str, value)) + ",)"
    return number_text(value) if isinstance(value, float) else repr(value)


def number_text(value: float) -> str:
    """A number as people write it, without loss: the shorter of a decimal and a fraction of 255.

    Example:
        >>> number_text(8 / 255), number_text(0.2)
        ('8/255', '0.2')
    """
    decimal, levels = repr(float(value)), round(value * 255, 2)
    fraction = f"{levels:g}/255"
    return fraction if float(f"{levels:g}") / 255 == value and len(fraction) < len(decimal) else decimal
