"""The settings of a training run: one frozen object, which is kept in the run directory."""

import math
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from torch import nn

from pclc.data.augment import AUGMENTATIONS, Augmentation
from pclc.losses import ComplementEntropy, GuidedComplementEntropy, PCLoss
from pclc.training.adversarial import AdversarialConfig

LossName = Literal["ce", "gce", "cot", "pc", "pc-lc", "pc-lc-authors"]

# The criteria of each loss in its first and second phase. A step makes one update for each criterion in turn: COT
# alternates cross-entropy and complement entropy.
_PHASES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "ce": (("ce",), ("ce",)),
    "gce": (("gce",), ("gce",)),
    "cot": (("ce", "complement"), ("ce", "complement")),
    "pc": (("ce",), ("pc",)),
    "pc-lc": (("ce",), ("pc-lc",)),
    "pc-lc-authors": (("ce",), ("pc-lc-authors",)),
}
LOSSES = tuple(_PHASES)

# Fields that were added later. They are written only where they are set, so that older runs keep their hash.
_LATER = ("optimizer", "momentum", "schedule", "warm_up_share", "ema", "adversarial", "label_smoothing")


@dataclass(frozen=True)
class Phase:
    """Epochs with the same criteria, started with a fresh optimizer."""

    criteria: tuple[str, ...]
    epochs: int


@dataclass(frozen=True)
class TrainConfig:
    """The paper's protocol; every number can be changed.

    Training has two phases, each with a fresh Adam at `lr`, multiplied by `lr_factor` at a third and at two thirds of
    the phase, unless `optimizer` and `schedule` say otherwise. PC-LC starts with cross-entropy, because its gradient
    vanishes on samples whose true class is still unlikely; the other losses are used in both phases, for a fair
    comparison.

    Args:
        loss: "ce", "gce", "cot", "pc" (no logit constraint), "pc-lc" (as printed), "pc-lc-authors" (as in the authors'
            code: soft constraint, PC averaged over classes).
        warm_up_epochs: length of the first phase; 0 leaves it out.
        epochs: length of the second phase.
        batch_size: examples per step, over all processes together.
        lr: learning rate at the start of each phase, or at its peak with schedule="cosine".
        lr_factor: factor by which the learning rate is multiplied at each milestone.
        milestones: the milestones, as shares of a phase.
        weight_decay: L2 penalty, added to the gradient.
        margin: xi of PC.
        logit_weight: lambda of PC-LC.
        alpha: exponent of GCE.
        augmentation: a name in `pclc.data.augment.AUGMENTATIONS`.
        validation: share of the training set that is held out, the same examples for every seed; 0: none.
        seed: seed of order, augmentation, dropout and crafting; with `pclc train` also of the weights.
        optimizer: "adam", or "sgd" with Nesterov momentum.
        momentum: of SGD; None: 0.9.
        schedule: "step", falling at the milestones; or "cosine", which rises linearly for the share `warm_up_share` of
            each phase and then falls to 0 as a cosine. The rate changes from epoch to epoch, not within one.
        warm_up_share: see `schedule`; unrelated to the phase of `warm_up_epochs`.
        ema: decay per step of averaged weights, such as 0.999; the average is then measured and saved. 0: no average.
        adversarial: adversarial training, in both phases; kept with every None filled in. None: on clean images.
            Method "pc" contains PC, with its own `margin` and `logit_weight`, and needs loss="ce" in a single phase.
        label_smoothing: of cross-entropy, in [0, 1): the target is 1 - s for the true class, plus s / K for each.
    """

    loss: LossName = "pc-lc"
    warm_up_epochs: int = 50
    epochs: int = 50
    batch_size: int = 256
    lr: float = 0.01
    lr_factor: float = 0.2
    milestones: tuple[float, ...] = (1 / 3, 2 / 3)
    weight_decay: float = 0.0
    margin: float = 0.995
    logit_weight: float = 0.05
    alpha: float = 1 / 3
    augmentation: str = "none"
    validation: float = 0.0
    seed: int = 0
    optimizer: Literal["adam", "sgd"] = "adam"
    momentum: float | None = None
    schedule: Literal["step", "cosine"] = "step"
    warm_up_share: float = 0.3
    ema: float = 0.0
    adversarial: AdversarialConfig | None = None
    label_smoothing: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.milestones, list):  # JSON has lists
            object.__setattr__(self, "milestones", tuple(self.milestones))
        recipe: object = self.adversarial
        if isinstance(recipe, dict):
            recipe = AdversarialConfig.from_dict(recipe)
        if not isinstance(recipe, AdversarialConfig | None):
            raise ValueError(f"Expected `adversarial` to be an AdversarialConfig or None, but got {recipe!r}.")
        object.__setattr__(self, "adversarial", recipe and recipe.resolved())
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is float and not _is_number(value):
                raise ValueError(f"Expected `{field.name}` to be an int or a float, but got {value!r}.")
        expectations = {
            "loss": (self.loss in LOSSES, f"one of {', '.join(LOSSES)}"),
            "warm_up_epochs": (_is_whole(self.warm_up_epochs, 0), "a whole number of at least 0"),
            "epochs": (_is_whole(self.epochs, 1), "a whole number of at least 1"),
            "batch_size": (_is_whole(self.batch_size, 1), "a whole number of at least 1"),
            "lr": (0 < self.lr < float("inf"), "greater than 0"),
            "lr_factor": (0 < self.lr_factor <= 1, "in (0, 1]"),
            "milestones": (_are_shares(self.milestones), "shares of a phase, each in (0, 1)"),
            "weight_decay": (0 <= self.weight_decay < float("inf"), "at least 0"),
            "margin": (0 < self.margin <= 1, "in (0, 1]"),
            "logit_weight": (0 <= self.logit_weight < float("inf"), "at least 0"),
            "alpha": (0 <= self.alpha < float("inf"), "at least 0"),
            "augmentation": (self.augmentation in AUGMENTATIONS, f"one of {', '.join(AUGMENTATIONS)}"),
            "validation": (0 <= self.validation < 1, "in [0, 1)"),
            "seed": (_is_whole(self.seed, 0) and self.seed < 2**63, "a whole number of at least 0, below 2**63"),
            "optimizer": (self.optimizer in ("adam", "sgd"), "adam or sgd"),
            "momentum": (self.momentum is None or (_is_number(self.momentum) and 0 <= self.momentum < 1), "in [0, 1)"),
            "schedule": (self.schedule in ("step", "cosine"), "step or cosine"),
            "warm_up_share": (0 <= self.warm_up_share < 1, "in [0, 1)"),
            "ema": (0 <= self.ema < 1, "in [0, 1)"),
            "label_smoothing": (0 <= self.label_smoothing < 1, "in [0, 1)"),
        }
        for name, (holds, expected) in expectations.items():
            if not holds:
                raise ValueError(f"Expected `{name}` to be {expected}, but got {getattr(self, name)!r}.")
        if self.momentum is not None and self.optimizer != "sgd":
            raise ValueError(
                f'Expected optimizer="sgd" with a momentum, but got momentum={self.momentum!r} for "{self.optimizer}".'
            )
        if self.label_smoothing and not any("ce" in phase.criteria for phase in self.phases):
            raise ValueError(
                "Expected `label_smoothing` to be used with cross-entropy, "
                f"but got {self.label_smoothing!r} for {self.loss!r}."
            )
        if self.adversarial is not None and self.adversarial.method == "pc":
            self._check_pc()

    def _check_pc(self) -> None:
        """Refuse settings that method "pc" would ignore."""
        numbers = {field.name: field.default for field in fields(self) if field.name in ("margin", "logit_weight")}
        for name, needed in {"loss": "ce", "warm_up_epochs": 0, **numbers}.items():
            if getattr(self, name) != needed:
                place = ", because PC takes it from `adversarial`" if name in numbers else ""
                raise ValueError(
                    f'Expected `{name}` to be {needed!r} in adversarial training with method "pc"{place}, '
                    f"but got {getattr(self, name)!r}."
                )

    @property
    def phases(self) -> tuple[Phase, ...]:
        """The phases in order, without an empty one."""
        first, second = _PHASES[self.loss]
        phases = Phase(first, self.warm_up_epochs), Phase(second, self.epochs)
        return tuple(phase for phase in phases if phase.epochs)

    @property
    def images(self) -> Augmentation:
        """The augmentation of that name."""
        return AUGMENTATIONS[self.augmentation]

    def criterion(self, name: str) -> nn.Module:
        """The criterion of that name with this configuration's numbers."""
        if name == "ce":
            return nn.CrossEntropyLoss(label_smoothing=self.label_smoothing)
        if name == "gce":
            return GuidedComplementEntropy(self.alpha)
        if name == "complement":
            return ComplementEntropy()
        if name == "pc-lc-authors":
            return PCLoss(self.margin, self.logit_weight, constraint="soft", average_classes=True)
        return PCLoss(self.margin, self.logit_weight if name == "pc-lc" else 0.0)

    def learning_rate(self, phase: Phase, epoch: int) -> float:
        """The learning rate in an epoch (from 0) of a phase; with a cosine, that at the middle of the epoch."""
        if self.schedule == "cosine":
            done = (epoch + 0.5) / phase.epochs
            if done < self.warm_up_share:
                return self.lr * done / self.warm_up_share
            return self.lr * (1 + math.cos(math.pi * (done - self.warm_up_share) / (1 - self.warm_up_share))) / 2
        passed = sum(epoch >= max(1, round(share * phase.epochs)) for share in self.milestones)
        return self.lr * self.lr_factor**passed

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        content = {**asdict(self), "milestones": list(self.milestones)}
        if self.adversarial is not None:
            content["adversarial"] = self.adversarial.as_dict()
        defaults = {field.name: field.default for field in fields(self)}
        return {name: value for name, value in content.items() if name not in _LATER or value != defaults[name]}

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> "TrainConfig":
        """Read what :meth:`as_dict` wrote."""
        unknown = sorted(set(content) - {field.name for field in fields(cls)})
        if unknown:
            raise ValueError(f"Expected only fields of TrainConfig, but got {', '.join(unknown)}.")
        return cls(**content)


def _is_whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _are_shares(values: object) -> bool:
    return isinstance(values, tuple) and all(_is_number(value) and 0 < value < 1 for value in values)
