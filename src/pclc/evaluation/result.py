"""What an evaluation gives: outcomes of every example under every attack, and the conditions they hold for."""

import math
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from pclc.attacks.types import Norm
from pclc.evaluation.statistics import CONFIDENCE, clopper_pearson

NO_EVIDENCE = "were exactly zero: that it fails there is no evidence of robustness."


@dataclass(frozen=True)
class Accuracy:
    """A share of examples with its exact 95 % interval.

    Example:
        >>> import torch
        >>> print(Accuracy.of(torch.tensor([True, True, False, True])))
        75.0 % (19.4 to 99.4)
    """

    correct: int
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, flags: Tensor) -> "Accuracy":
        """Of (N,) flags."""
        correct, n = int(flags.sum()), len(flags)
        interval = clopper_pearson(correct, n, CONFIDENCE)
        return cls(correct, n, interval.low, interval.high)

    @property
    def value(self) -> float:
        """The share itself."""
        return self.correct / self.n

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        return f"{100 * self.value:.1f} % ({100 * self.low:.1f} to {100 * self.high:.1f})"


@dataclass(frozen=True)
class Perturbations:
    """Over the `n` examples that the model gets right and the attack turned; None where there are none."""

    n: int
    mean_linf: float | None
    max_linf: float | None
    mean_l2: float | None
    max_l2: float | None

    @classmethod
    def of(cls, linf: Tensor, l2: Tensor) -> "Perturbations":
        """Of the distances of those examples."""
        if not len(linf):
            return cls(0, None, None, None, None)
        return cls(len(linf), float(linf.mean()), float(linf.max()), float(l2.mean()), float(l2.max()))


@dataclass(frozen=True, eq=False)
class Outcome:
    """One attack on all examples.

    Attributes:
        attack: its text, or the name of a callable.
        norm: of the budget; None, like `eps`, where the attack has none.
        eps: radius of the ball.
        stop: "success": an example that the model gets wrong anyway counts as broken. "never": the last iterate counts,
            as in the tables of papers, and may set a wrong example right. None (a callable of others): as "success".
        seed: of its random numbers.
        robust: (N,) flags, in the order of the examples.
        perturbations: sizes of those that fooled.
        forwards: forward passes of the model, in examples; None where unknown.
        backwards: backward passes, in examples; None where unknown.
        seconds: spent on it, summed over all processes.
        outside: examples that left the ball or the box, which count as not fooled.
        carried: examples that the same attack broke at a smaller eps, and that were not attacked again.
        zero_gradient_share: of gradients that were exactly zero, a mean over chunks weighted by passes; None where the
            attack asks for none.
        substitute: hash of the model that a transfer was made on.
        linf, l2: (N,) float64, size of each perturbation; None in an evaluation that was read from a file.
        x_adv: (N, ...) where examples are kept; uint8 where they were rounded to bytes.
    """

    attack: str
    norm: Norm | None
    eps: float | None
    stop: str | None
    seed: int
    robust: Tensor
    perturbations: Perturbations
    forwards: int | None
    backwards: int | None
    seconds: float
    outside: int = 0
    carried: int = 0
    zero_gradient_share: float | None = None
    substitute: str | None = None
    linf: Tensor | None = field(default=None, repr=False)
    l2: Tensor | None = field(default=None, repr=False)
    x_adv: Tensor | None = field(default=None, repr=False)

    @property
    def accuracy(self) -> Accuracy:
        """The share of examples that are still classified rightly."""
        return Accuracy.of(self.robust)

    @property
    def notes(self) -> tuple[str, ...]:
        """Reasons, in words, why the figure means less than it seems."""
        notes = []
        if self.outside:
            notes.append(
                f"{self.outside} examples of {self.attack} left the ball or the box and do not count as fooled."
            )
        if self.zero_gradient_share:
            notes.append(f"{self.zero_gradient_share:.1%} of the gradients of {self.attack} {NO_EVIDENCE}")
        return tuple(notes)


@dataclass(frozen=True)
class Conditions:
    """What the figures hold for.

    Attributes:
        model: its name; `model_hash` is that of parameters and buffers, None for a plain function.
        data: name of the data; `data_hash` is that of images, labels and indices.
        eight_bit: adversarial examples were rounded to k/255 before they counted.
        device, precision: of crafting; outcomes are decided in IEEE float32 in any case, near ties in float64.
        processes: that shared the work.
        config_hash: of everything asked for.
        versions: of pclc, torch and Python.
    """

    model: str
    model_hash: str | None
    data: str
    data_hash: str
    eight_bit: bool
    device: str
    precision: str
    processes: int
    config_hash: str
    versions: dict[str, str]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Accuracy on clean images and under attack, example by example.

    Attributes:
        clean: (N,) flags: the model is right on the clean image.
        index: (N,) places of the examples in their data set.
        outcomes: one for each attack and eps.
        conditions: what the figures hold for.
        warnings: traps of the set-up that were noticed, in words.
        seconds: in total.
    """

    clean: Tensor
    index: Tensor
    outcomes: tuple[Outcome, ...]
    conditions: Conditions
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def n(self) -> int:
        """Number of examples."""
        return len(self.clean)

    @property
    def clean_accuracy(self) -> Accuracy:
        """On the images as they are."""
        return Accuracy.of(self.clean)

    @property
    def robust_accuracy(self) -> Accuracy:
        """The worst case over all attacks of the list, whatever their budgets."""
        return Accuracy.of(self.survivors())

    @property
    def budgets(self) -> list[tuple[Norm | None, float | None]]:
        """The (norm, eps) that occur, each once; (None, None) for attacks without an eps."""
        return list(dict.fromkeys((outcome.norm, outcome.eps) for outcome in self.outcomes))

    def survivors(self, norm: Norm | None = None, eps: float | None = None) -> Tensor:
        """(N,) flags: right on the clean image and under every attack.

        With a budget, under every attack of this norm with an eps of at most this: what a smaller ball holds is in the
        larger one too. One of them has to be at this eps itself: smaller ones alone say too little about it.
        """
        flags = self.clean.clone()
        for outcome in self.within(norm, eps):
            flags &= outcome.robust
        return flags

    def worst_case(self, norm: Norm | None = None, eps: float | None = None) -> Accuracy:
        """The mean over examples of the minimum over attacks, and over the clean image (see `survivors`)."""
        return Accuracy.of(self.survivors(norm, eps))

    def within(self, norm: Norm | None = None, eps: float | None = None) -> list[Outcome]:
        """The outcomes over which `survivors` goes."""
        if (norm is None) != (eps is None):
            raise ValueError(f"Expected `norm` and `eps` together, but got {norm!r} and {eps!r}.")
        if eps is None:
            return list(self.outcomes)
        radii = [outcome.eps for outcome in self.outcomes if outcome.norm == norm and outcome.eps is not None]
        same = [radius for radius in radii if math.isclose(radius, eps)]  # 0.1 + 0.2 is meant to be 0.3
        if not same:
            raise ValueError(
                f"Expected an attack with {norm}, eps {eps:g}, without which there is no worst case, but got these "
                f"budgets: {', '.join(f'{n}, eps {e:g}' for n, e in self.budgets if e is not None) or 'none'}."
            )
        return [o for o in self.outcomes if o.norm == norm and o.eps is not None and o.eps <= max(same)]

    @property
    def notes(self) -> tuple[str, ...]:
        """All that was noticed, in words."""
        return (*self.warnings, *(note for outcome in self.outcomes for note in outcome.notes))

    def rows(self) -> list[dict[str, Any]]:
        """A table: the clean images, each attack, and the worst case of each budget and of all attacks."""
        rows = [_row("clean", self.clean_accuracy)]
        for outcome in self.outcomes:
            sizes, forwards, backwards = outcome.perturbations, outcome.forwards, outcome.backwards
            rows.append(
                _row(outcome.attack, outcome.accuracy)
                | {
                    "mean Linf": _text(sizes.mean_linf, ".4f"),
                    "max Linf": _text(sizes.max_linf, ".4f"),
                    "mean L2": _text(sizes.mean_l2, ".3f"),
                    "max L2": _text(sizes.max_l2, ".3f"),
                    "forward": _text(None if forwards is None else forwards / self.n, ".1f"),
                    "backward": _text(None if backwards is None else backwards / self.n, ".1f"),
                    "seconds": f"{outcome.seconds:.1f}",
                }
            )
        if len(self.budgets) > 1:
            rows += [
                _row(f"worst case in {norm}, eps {eps:.4g}", self.worst_case(norm, eps))
                for norm, eps in self.budgets
                if norm is not None and eps is not None
            ]
        if self.outcomes:
            rows.append(_row("worst case of all", self.robust_accuracy))
        return rows

    def __str__(self) -> str:
        lines = (f"{row['attack']}: {row['accuracy']} % ({row['interval']})" for row in self.rows())
        return "\n".join((*lines, *self.notes))

    def sentence(self) -> str:
        """The conditions, in one line."""
        about = self.conditions
        seeds = sorted({outcome.seed for outcome in self.outcomes})
        return (
            f"{about.model} on {self.n} examples of {about.data}: accuracy in % with exact 95 % intervals "
            f"(Clopper-Pearson); seed {', '.join(map(str, seeds)) or '-'}; "
            f"{'rounded to 8 bits; ' if about.eight_bit else ''}{about.device}, {about.precision}, "
            f"torch {about.versions['torch']}, pclc {about.versions['pclc']}; model {about.model_hash}, "
            f"data {about.data_hash}, configuration {about.config_hash}. Perturbations are those of examples that "
            "the attack turned; passes are per example."
        )


def _row(name: str, accuracy: Accuracy) -> dict[str, Any]:
    empty = dict.fromkeys(("mean Linf", "max Linf", "mean L2", "max L2", "forward", "backward", "seconds"), "-")
    interval = f"{100 * accuracy.low:.2f} to {100 * accuracy.high:.2f}"
    return {"attack": name, "accuracy": f"{100 * accuracy.value:.2f}", "interval": interval} | empty


def _text(value: float | None, style: str) -> str:
    return "-" if value is None else format(value, style)
