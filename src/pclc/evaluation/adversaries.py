"""The attacks that `evaluate` takes, in one form: ours, their texts, and callables of other libraries."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from pclc.attacks import Attack, AttackWarning, Transfer, objective_names, parse_attack
from pclc.attacks.frozen import frozen
from pclc.attacks.types import Model, Norm
from pclc.attacks.validate import check_ball
from pclc.execution import Execution, in_batches
from pclc.hashes import architecture_hash, model_hash

Callee = Callable[[Model, Tensor, Tensor], Tensor]

# What comes with this package is told by its version; what others register may change under the same name.
_OUR_OBJECTIVES = frozenset(objective_names())


@dataclass(frozen=True)
class Foreign:
    """A callable of another library, with the budget it is held to.

    Args:
        call: (model, x, y) to x_adv, of the shape of x.
        name: stands for the callable and its settings in tables and files. A resumed evaluation relies on it: use
            another name for other settings. None: the callable's own name, and its results are not resumed.
        norm: "Linf" or "L2", with `eps`; None: only the box is checked.
        eps: radius of the ball.

    Example:
        >>> Foreign(lambda model, x, y: x, name="nothing", norm="Linf", eps=0.1).label
        'nothing'
    """

    call: Callee
    name: str | None = None
    norm: Norm | None = None
    eps: float | None = None

    def __post_init__(self) -> None:
        if not callable(self.call):
            raise ValueError(f"Expected `call` to be a callable (model, x, y), but got a {type(self.call).__name__}.")
        if (self.norm is None) != (self.eps is None):
            raise ValueError(f"Expected `norm` and `eps` together, but got {self.norm!r} and {self.eps!r}.")
        if self.norm is not None:
            check_ball(self.eps, self.norm)

    @property
    def label(self) -> str:
        """What tables call it."""
        return self.name or str(getattr(self.call, "__name__", type(self.call).__name__))


class Found(NamedTuple):
    """What an attack returned; `success` is None where we have to find out ourselves."""

    x_adv: Tensor
    success: Tensor | None
    forwards: int | None
    backwards: int | None
    zero_gradient_share: float | None


@dataclass(frozen=True)
class Entry:
    """One row of the table: an attack at one budget.

    Attributes:
        attack: ours, or a `Foreign`.
        smaller: the place of the same attack at the next smaller eps, whose successes count here too; None for none.
    """

    attack: Attack | Foreign
    smaller: int | None = None

    @property
    def text(self) -> str:
        """The attack as tables and files show it."""
        return self.attack.label if isinstance(self.attack, Foreign) else str(self.attack)

    @property
    def norm(self) -> Norm | None:
        """Of the budget; None where the attack has no eps."""
        return None if self.eps is None else getattr(_budgeted(self.attack), "norm", None)

    @property
    def eps(self) -> float | None:
        """Of the budget; None where the attack has none."""
        return getattr(_budgeted(self.attack), "eps", None)

    @property
    def stop(self) -> str | None:
        """The attack's mode; a callable of others has none."""
        return None if isinstance(self.attack, Foreign) else self.attack.stop

    @property
    def substitute(self) -> str | None:
        """The hash of the model on which a transfer is made."""
        return model_hash(self.attack.substitute) if isinstance(self.attack, Transfer) else None

    @property
    def identity(self) -> dict[str, Any] | None:
        """All that decides what the attack does; None where that cannot be told."""
        if isinstance(self.attack, Foreign):
            return None if self.attack.name is None else {"foreign": self.attack.name, "budget": [self.norm, self.eps]}
        if (isinstance(self.attack, Transfer) and self.substitute is None) or not _is_ours(self.attack):
            return None
        found = {"attack": self.text, "substitute": self.substitute}
        if isinstance(self.attack, Transfer):
            found["architecture"] = architecture_hash(self.attack.substitute)
        return found

    def run(self, model: Model, x: Tensor, y: Tensor, seed: int, index: Tensor, execution: Execution) -> Found:
        """Attack the examples."""
        if isinstance(self.attack, Foreign):
            return _run_foreign(self.attack, model, x, y, seed + int(index[0]), execution)
        result = self.attack.run(model, x, y, seed=seed, index=index, execution=execution)
        return Found(result.x_adv, result.success, result.forwards, result.backwards, result.zero_gradient_share)


def plan(
    attacks: Iterable[Attack | Foreign | Callee | str], eps: Sequence[float] | None = None, norm: Norm | None = None
) -> list[Entry]:
    """The rows of the table; `eps` replaces the radius of every attack that has one, from the smallest upwards.

    Example:
        >>> [entry.text for entry in plan(["fgsm(eps=0.1)"], eps=[0.2, 0.1])]
        ['fgsm(eps=0.1)', 'fgsm(eps=0.2)']
    """
    if isinstance(attacks, str | Attack | Foreign) or not isinstance(attacks, Iterable):
        raise ValueError(f"Expected `attacks` to be a list of attacks, but got {attacks!r}.")
    entries: list[Entry] = []
    for given in attacks:
        attack = _attack(given)
        smaller: int | None = None
        for variant in _at_each_eps(attack, eps, norm):
            entry = Entry(variant, smaller)
            if any(entry.text == other.text and entry.attack == other.attack for other in entries):
                raise ValueError(f"Expected every attack once, but got {entry.text} twice.")
            entries.append(entry)
            # With stop="never" the last iterate is what counts, so that nothing is carried upwards.
            smaller = len(entries) - 1 if entry.stop == "success" else None
    return entries


def _attack(given: object) -> Attack | Foreign:
    if isinstance(given, str):
        given = parse_attack(given)
    if isinstance(given, Attack):
        if given.targeted:
            raise ValueError(
                f"Expected untargeted attacks, because `y` holds the true classes, but got {given} with targeted=True."
            )
        return given
    if isinstance(given, Foreign):
        return given
    if callable(given) and not isinstance(given, type):
        return Foreign(given)
    raise ValueError(
        f"Expected every attack to be one of pclc.attacks, its text, or a callable (model, x, y), but got {given!r}."
    )


def _at_each_eps(
    attack: Attack | Foreign, eps: Sequence[float] | None, norm: Norm | None
) -> Sequence[Attack | Foreign]:
    if eps is None:
        return [attack]
    if isinstance(attack, Foreign):
        if attack.eps is not None:
            return [attack]
        if len(eps) > 1:
            raise ValueError(
                f"Expected one `eps` with {attack.label}, which is a callable whose eps cannot be set from here, "
                f"but got {len(eps)}. Give each as Foreign(call, name, norm, eps)."
            )
        return [replace(attack, eps=eps[0], norm=norm or "Linf")]
    if not hasattr(_budgeted(attack), "eps"):
        return [attack]
    return [_with_eps(attack, value) for value in sorted(set(eps))]


def _with_eps(attack: Attack, eps: float) -> Attack:
    inner = getattr(attack, "attack", None)
    if isinstance(inner, Attack):
        return replace(attack, attack=_with_eps(inner, eps))  # type: ignore[call-arg]
    return replace(attack, eps=eps)  # type: ignore[call-arg]


def _budgeted(attack: Attack | Foreign) -> Attack | Foreign:
    """The attack that has the eps: within one that is made of another, such as a transfer, that other."""
    inner = getattr(attack, "attack", None)
    return _budgeted(inner) if isinstance(inner, Attack) else attack


def _is_ours(attack: Attack) -> bool:
    """Whether all code of an attack comes with this package, so that its text tells what it does."""
    parts = [getattr(attack, field.name) for field in fields(attack)]
    inner = [one for part in parts for one in (part if isinstance(part, tuple) else (part,)) if isinstance(one, Attack)]
    objective = str(getattr(attack, "objective", "ce")).partition("*")[0]
    ours = type(attack).__module__.startswith("pclc.") and objective in _OUR_OBJECTIVES
    return ours and all(map(_is_ours, inner))


def _run_foreign(attack: Foreign, model: Model, x: Tensor, y: Tensor, seed: int, execution: Execution) -> Found:
    """Call it in batches, on a copy of x, with global generators of its own and the model in eval mode."""
    passes = 0

    def count(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal passes
        passes += len(inputs[0]) if inputs and isinstance(inputs[0], Tensor) else 0

    def batch(x: Tensor, y: Tensor) -> Tensor:
        try:
            x_adv = attack.call(model, x.clone(), y.clone())
        except TypeError as error:
            error.add_note(f"{attack.label} is called as (model, x, y): wrap it in a function if it takes others.")
            raise
        if not isinstance(x_adv, Tensor) or x_adv.shape != x.shape:
            got = tuple(x_adv.shape) if isinstance(x_adv, Tensor) else f"a {type(x_adv).__name__}"
            raise ValueError(f"Expected {attack.label} to return a tensor of shape {tuple(x.shape)}, but got {got}.")
        return x_adv.detach().to(x, copy=True)  # it may use its output's memory again

    hook = None
    if isinstance(model, nn.Module) and not isinstance(model, torch.jit.ScriptModule):  # which takes no hooks
        hook = model.register_forward_pre_hook(count)
    try:
        with (
            torch.inference_mode(False),
            _put_back(model, attack.label),
            torch.enable_grad(),
            torch.random.fork_rng([x.device] if x.device.type == "cuda" else []),
            frozen(model),
        ):
            torch.manual_seed(seed % 2**63)
            x_adv = in_batches(batch, x, y, size=execution.resolved_batch_size)
    finally:
        if hook:
            hook.remove()
    return Found(x_adv, None, passes if hook else None, None, None)


@contextmanager
def _put_back(model: Model, label: str) -> Iterator[None]:
    """Give a model its parameters and buffers back, where an attack of others changed them, and say so."""
    tensors = [*model.parameters(), *model.buffers()] if isinstance(model, nn.Module) else []
    before = [tensor.detach().clone() for tensor in tensors]
    try:
        yield
    finally:
        changed = [(now, old) for now, old in zip(tensors, before, strict=True) if not torch.equal(now, old)]
        for now, old in changed:
            now.data.copy_(old)
    if changed:
        warnings.warn(
            f"{label} changed the model while it ran, as train mode changes running statistics. The model was restored "
            "before it judged the examples, but they were made on the changed one and say less about it.",
            AttackWarning,
            stacklevel=2,
        )
