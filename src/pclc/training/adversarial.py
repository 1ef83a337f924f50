"""Adversarial training: which examples are crafted and how they enter the loss; the usual recipes by name."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, NamedTuple

from pclc.attacks.notices import UnreachableWarning
from pclc.attacks.objectives import directed
from pclc.attacks.types import Norm
from pclc.attacks.validate import (
    check_ball,
    check_choice,
    check_count,
    check_flag,
    check_number,
    warn_if_unreachable,
)
from pclc.training.robust_losses import check_pc_weights

Method = Literal["mix", "madry", "trades", "mart", "fast", "pc"]

KL = "kl"  # this objective needs the clean logits, so it is not one of `pclc.attacks`


class _Defaults(NamedTuple):
    """The defaults of a method's paper, and the weights of its loss."""

    steps: int = 10
    objective: str = "ce"
    weights: Mapping[str, float] = {}


_PC_WEIGHTS = {"beta": 10.0, "margin": 0.995, "clean_share": 0.0, "kl_weight": 0.0, "logit_weight": 0.0}
_METHODS: dict[str, _Defaults] = {
    "mix": _Defaults(),
    "madry": _Defaults(),
    "trades": _Defaults(objective=KL, weights={"beta": 6.0}),
    "mart": _Defaults(weights={"beta": 5.0}),
    "fast": _Defaults(steps=1),
    "pc": _Defaults(steps=7, weights=_PC_WEIGHTS),
}
METHODS = tuple(_METHODS)

# Fields that were added later. They are written only where they are set, so that older runs keep their hash.
_LATER = tuple(name for name in _PC_WEIGHTS if name != "beta")


@dataclass(frozen=True)
class AdversarialConfig:
    r"""How adversarial examples are made in a training step, and how they enter its loss.

    For clean images x, adversarial ones x', softmax f and the phase's criterion L (cross-entropy, PC-LC, ...):

    ==========  ============================================================================================
    "mix"       (L(x) + L(x')) / 2: clean and adversarial 1:1, as in the paper
    "madry"     L(x') (Madry et al., ICLR 2018, arXiv 1706.06083)
    "trades"    L(x) + beta KL(f(x) || f(x')) (Zhang et al., ICML 2019, arXiv 1901.08573)
    "mart"      L(x') - log(1 - max_{k != y} f_k(x')) + beta (1 - f_y(x)) KL(f(x) || f(x'))
                (Wang et al., ICLR 2020)
    "fast"      L(x') with a single step of 1.25 eps from a random start (Wong et al., ICLR 2020,
                arXiv 2001.03994)
    "pc"        (1 - s) L(x') + s L(x) + beta PC(x') + kappa KL(f(x) || f(x')) + lambda LC(x'), with L cross-entropy:
                :func:`pclc.training.pc_adversarial_loss`
    ==========  ============================================================================================

    None stands for the default of the method's paper; :meth:`resolved` fills it in. The authors of TRADES and MART
    start at noise of 0.001 around the image and pass clean and adversarial images through the network separately; here
    both start at a random point of the ball, like the others, and the images pass together.

    Args:
        method: one of the six above.
        eps: radius of the ball; or (low, high), from which each example draws its own in each epoch.
        alpha: size of a step. None: eps / min(steps, 4); 1.25 eps for "fast", and for "pc" with one step from a random
            start. With a range of eps it belongs to the upper end; smaller balls get proportionally smaller steps.
        steps: number of steps; 1 without a random start is FGSM. None: 10, for "fast" 1, for "pc" 7.
        random_start: start at a random point of the ball; otherwise at the image.
        objective: what crafting maximises, a name of `pclc.attacks.objective_names()` with an optional logit scale, or
            "kl": KL(f(x) || f(x')). None: "kl" for "trades", otherwise "ce".
        beta: weight of the KL term in "trades" (None: 6) and "mart" (None: 5), of PC in "pc" (None: 10); refused by
            the others.
        norm: "Linf" or "L2".
        ramp_epochs: epochs over which eps and alpha grow linearly to their values. Large balls need it: at eps 0.3 on
            MNIST training may otherwise stay at chance for a long time, or forever.
        validate_every: epochs between two measurements of robust accuracy; the last epoch is always measured.
        margin: xi of PC in "pc", in (0, 1]. None: 0.995. With 1 PC is K / (K - 1) times the mean absolute error.
        clean_share: s in "pc", in [0, 1]. None: 0. Where it and `kl_weight` are 0 the loss needs no clean logits.
        kl_weight: kappa in "pc". None: 0.
        logit_weight: lambda in "pc"; above 0 only where `beta` is. None: 0.

    Example:
        >>> config = AdversarialConfig("trades", eps=8 / 255).resolved()
        >>> config.steps, config.objective, config.beta, config.alpha == 2 / 255
        (10, 'kl', 6.0, True)
    """

    method: Method = "madry"
    eps: float | tuple[float, float] = 8 / 255
    alpha: float | None = None
    steps: int | None = None
    random_start: bool = True
    objective: str | None = None
    beta: float | None = None
    norm: Norm = "Linf"
    ramp_epochs: int = 0
    validate_every: int = 1
    margin: float | None = None
    clean_share: float | None = None
    kl_weight: float | None = None
    logit_weight: float | None = None

    def __post_init__(self) -> None:
        check_choice("method", self.method, METHODS)
        if isinstance(self.eps, list | tuple):  # JSON has lists
            object.__setattr__(self, "eps", tuple(self.eps))
        low, high = self._ends()
        check_ball(low, self.norm)
        check_ball(high, self.norm)
        if not low <= high or high == 0:
            raise ValueError(
                f"Expected `eps` to be a number above 0, or (low, high) with low <= high, but got {self.eps!r}."
            )
        check_flag("random_start", self.random_start)
        check_count("validate_every", self.validate_every)
        if self.ramp_epochs != 0:
            check_count("ramp_epochs", self.ramp_epochs)
        if self.alpha is not None:
            check_number("alpha", self.alpha, positive=True)
        if self.steps is not None:
            check_count("steps", self.steps)
        if self.objective not in (None, KL):
            directed(self.objective, targeted=False)
        self._check_weights()
        self._check_together()
        if self.alpha is not None:
            warn_if_unreachable(self.largest_eps, self.alpha, self.steps or _METHODS[self.method].steps, "alpha")

    @property
    def largest_eps(self) -> float:
        """Radius of the largest ball."""
        return self._ends()[1]

    @property
    def clean(self) -> bool:
        """Whether the loss needs the logits of the clean images."""
        if self.method == "pc":
            return self.weights["clean_share"] > 0 or self.weights["kl_weight"] > 0
        return self.method in ("mix", "trades", "mart")

    @property
    def weights(self) -> dict[str, float]:
        """The weights of the method's loss by name, with every None filled in.

        Example:
            >>> AdversarialConfig("mart").weights
            {'beta': 5.0}
        """
        usual = _METHODS[self.method].weights
        return {name: value if getattr(self, name) is None else getattr(self, name) for name, value in usual.items()}

    def resolved(self) -> "AdversarialConfig":
        """The same with every None filled in."""
        usual = _METHODS[self.method]
        steps = self.steps or usual.steps
        weights: dict[str, Any] = {**self.weights}
        one_step = self.method in ("fast", "pc") and steps == 1 and self.random_start
        alpha = 1.25 * self.largest_eps if one_step else self.largest_eps / min(steps, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UnreachableWarning)  # said when `self` was made
            return replace(
                self,
                steps=steps,
                alpha=alpha if self.alpha is None else self.alpha,
                objective=self.objective or usual.objective,
                **weights,
            )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        content = {**asdict(self), "eps": list(self.eps) if isinstance(self.eps, tuple) else self.eps}
        return {name: value for name, value in content.items() if name not in _LATER or value is not None}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "AdversarialConfig":
        """Read what :meth:`as_dict` wrote."""
        unknown = sorted(set(content) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"Expected only fields of AdversarialConfig, but got {', '.join(unknown)}.")
        return cls(**content)

    def _ends(self) -> tuple[float, float]:
        if not isinstance(self.eps, tuple):
            return self.eps, self.eps
        if len(self.eps) != 2:
            raise ValueError(f"Expected `eps` to be a number or (low, high), but got {self.eps!r}.")
        return self.eps

    def _check_weights(self) -> None:
        """Refuse a weight that the method's loss does not have, or a value without meaning."""
        for name in _PC_WEIGHTS:
            value = getattr(self, name)
            users = [method for method, usual in _METHODS.items() if name in usual.weights]
            if value is not None and self.method not in users:
                listed = " or ".join(f'"{method}"' for method in users)
                raise ValueError(
                    f'Expected `{name}` to be used with method {listed}, but got {value!r} for "{self.method}".'
                )
        if self.method == "pc":
            check_pc_weights(**self.weights)
        elif self.beta is not None:
            check_number("beta", self.beta)

    def _check_together(self) -> None:
        """Refuse settings that exclude one another."""
        if self.method == "fast" and (self.steps not in (None, 1) or not self.random_start):
            raise ValueError(
                'Expected method "fast" to take 1 step from a random start, '
                f"but got steps={self.steps!r} and random_start={self.random_start!r}. "
                'With several steps it is method "madry".'
            )
        if (self.objective or _METHODS[self.method].objective) == KL and not self.random_start:
            raise ValueError(
                'Expected a random start with objective "kl", whose gradient is zero at the image itself, '
                "but got random_start=False."
            )


# Budgets as in the papers, with 8/255 and 2/255 for the 0.031 and 0.007 of TRADES; optimizer and schedule belong to
# `TrainConfig`. The paper of PC-LC states neither start nor step of its PGD. The ramp is not Madry's: without it
# LeNet-5 stays at chance for a long time.
ADVERSARIAL_PRESETS: dict[str, AdversarialConfig] = {
    "paper-grey": AdversarialConfig("mix", eps=(0.1, 0.3), steps=1, random_start=False),
    "paper-cifar10": AdversarialConfig("mix", eps=(0.0, 0.1), steps=5),
    "madry-mnist": AdversarialConfig("madry", eps=0.3, alpha=0.01, steps=40, ramp_epochs=5),
    "madry-cifar10": AdversarialConfig("madry", eps=8 / 255, alpha=2 / 255, steps=7),
    "trades": AdversarialConfig("trades", eps=8 / 255, alpha=2 / 255, steps=10, beta=6.0),
    "mart": AdversarialConfig("mart", eps=8 / 255, alpha=2 / 255, steps=10, beta=5.0),
    "fast": AdversarialConfig("fast", eps=8 / 255, alpha=10 / 255),
    "pc": AdversarialConfig("pc", eps=8 / 255, alpha=2 / 255, steps=7, beta=10.0),
    "pc-fast": AdversarialConfig("pc", eps=8 / 255, alpha=10 / 255, steps=1, beta=10.0),
}


def adversarial_preset(name: str, **changes: Any) -> AdversarialConfig:
    """A recipe by name, with changes.

    Changing `eps`, `steps` or `norm` resets the recipe's `alpha`; changing `method` also resets its `steps`,
    `objective` and loss weights. They become the method's defaults unless they are given too. Another `norm` needs an
    `eps` of its own.

    Example:
        >>> adversarial_preset("trades", eps=0.1).resolved().alpha
        0.025
    """
    if name not in ADVERSARIAL_PRESETS:
        raise ValueError(
            f"Expected a recipe of adversarial training ({', '.join(ADVERSARIAL_PRESETS)}), but got {name!r}."
        )
    preset, dropped = ADVERSARIAL_PRESETS[name], dict[str, Any]()
    changed = {key for key, value in changes.items() if value != getattr(preset, key, None)}
    if "norm" in changed and "eps" not in changes:
        raise ValueError(
            f"Expected `eps` with norm={changes['norm']!r}, since that of {name!r} is for {preset.norm}, but got none."
        )
    if changed & {"eps", "steps", "norm"}:
        dropped["alpha"] = None
    if "method" in changed:
        dropped.update(alpha=None, steps=None, objective=None, random_start=True, **dict.fromkeys(_PC_WEIGHTS))
    return replace(preset, **{**dropped, **changes})
