"""Adversarial examples made on one model and tried on another."""

from dataclasses import dataclass, field, replace

from torch import Tensor

from pclc.attacks.attack import Attack
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim


@dataclass(frozen=True, repr=False)
class Transfer(Attack):
    r"""A black-box attack by transfer: $x' = A(\text{substitute}, x, y)$, tried on the model (Papernot et al., 2017).

    The only attack that holds a model, because it is made of one. Two transfers are equal only when they share the
    substitute itself, and `parse_attack` cannot make one from text.

    The substitute is attacked with the whole budget, so `attack` is kept with stop="never": examples that stop at the
    substitute's first error are too close to x to fool another model. `stop` is about the model under attack:
    "success" leaves examples alone that it gets wrong without an attack.

    Args:
        attack: how the substitute is attacked; decides whether this attack is targeted.
        substitute: images (N, ...) to logits (N, K), with the classes of the model under attack.
        stop: "success" or "never".

    Cost: two forward passes of the model under attack; the passes of the substitute are not counted.

    Example:
        >>> import torch
        >>> from pclc.attacks import FGSM
        >>> attack = Transfer(FGSM(eps=0.25), substitute=torch.nn.Linear(4, 3))
        >>> print(attack)
        transfer(fgsm(eps=0.25, stop="never"), substitute=Linear)
        >>> attack(torch.nn.Linear(4, 3), torch.rand(5, 4), torch.tensor([0, 1, 2, 0, 1])).shape
        torch.Size([5, 4])
    """

    attack: Attack
    substitute: Model
    targeted: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        if not isinstance(self.attack, Attack) or isinstance(self.attack, Transfer):
            raise ValueError(f"Expected `attack` to be an attack such as PGD, but got a {type(self.attack).__name__}.")
        if not callable(self.substitute):
            raise ValueError(f"Expected `substitute` to be a model, but got a {type(self.substitute).__name__}.")
        object.__setattr__(self, "attack", replace(self.attack, stop="never"))
        object.__setattr__(self, "targeted", self.attack.targeted)
        super().__post_init__()

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        return self.attack(self.substitute, x, y, seed, index, victim.execution)

    def __str__(self) -> str:
        stop = "" if self.stop == "success" else f', stop="{self.stop}"'
        name = getattr(self.substitute, "__name__", type(self.substitute).__name__)
        return f"transfer({self.attack}, substitute={name}{stop})"

    __repr__ = __str__
