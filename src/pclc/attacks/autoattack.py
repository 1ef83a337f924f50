"""AutoAttack: several attacks, each on what the earlier ones left standing."""

import os
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from pclc.attacks.apgd import APGD
from pclc.attacks.apgd_targeted import APGDTargeted
from pclc.attacks.attack import Attack, AttackResult
from pclc.attacks.autoattack_state import CLEAN, UNBROKEN, Component, Journal, State
from pclc.attacks.eot import EOT
from pclc.attacks.fab import FAB
from pclc.attacks.inputs import check_examples, check_randomness
from pclc.attacks.notices import DynamicModelWarning, RandomModelWarning, SquareStrongerWarning
from pclc.attacks.registry import register_attack
from pclc.attacks.square import Square
from pclc.attacks.suspicions import is_dynamic, is_random
from pclc.attacks.types import Model, Norm
from pclc.attacks.validate import check_ball, check_choice, check_untargeted
from pclc.attacks.victim import Victim
from pclc.execution import Execution
from pclc.hashes import architecture_hash, model_hash, tensor_hash

Version = Literal["standard", "rand", "custom"]
Progress = Callable[[str, int, int], None]  # what is done, the number of components done, the examples left

_FEWEST_CLASSES: dict[Version, int] = {"standard": 4, "rand": 3, "custom": 2}  # which the DLR losses need
_LOOKED_AT, _FEW = 250, 8  # images, and of these at a time
_SQUARE_GAIN = 0.002
_DRAWS = 20  # of a random model, before it is said to be fooled


@dataclass(frozen=True, eq=False)
class AutoAttackResult(AttackResult):
    """What a run of AutoAttack gives.

    Attributes:
        broken_by: (N,) int64, the component that fooled the example first, as its place in `components`; 0 where the
            image is wrong without an attack (with stop="never" only where no attack fooled it), -1 where nothing did.
        components: "clean", then the attacks that ran, in their order, with the accuracy that each left.
    """

    broken_by: Tensor
    components: tuple[Component, ...]


@register_attack("autoattack")
@dataclass(frozen=True, repr=False)
class AutoAttack(Attack):
    """AutoAttack (Croce and Hein, ICML 2020, arXiv 2003.01690), each component on what the earlier ones left.

    - "standard": :class:`APGD` on cross-entropy, :class:`APGDTargeted` and :class:`FAB` on the min(9, K - 1) most
      probable false classes, 100 steps each, and :class:`Square` with 5,000 queries. Never fewer under this name.
    - "rand", for random models: APGD on cross-entropy and on DLR, averaged over 20 draws (:class:`EOT`). An example
      counts when it fools in most of 20 draws, and the accuracies of components are expected accuracies.
    - "custom": the attacks that are given, for quick trials; the text of the attack then names them.

    A model of fewer than 4 classes ("rand": 3) is refused, because the DLR losses are not defined for it.

    Args:
        eps: radius of the ball.
        norm: "Linf" or "L2".
        version: "standard", "rand" or "custom".
        attacks: the components of version "custom", with the same eps and norm.
        targeted: has to be False.
        stop: "success" leaves examples alone that are wrong without an attack; "never" attacks them too. Components
            stop at success either way. An example that nothing fools is returned as it is.

    Cost: at most that of all components, and one pass after each.

    Example:
        >>> attack = AutoAttack(eps=0.2, version="custom", attacks=(APGD(eps=0.2, steps=5),))
        >>> model, x = torch.nn.Linear(4, 5), torch.full((2, 4), 0.5)
        >>> result = attack.run(model, x, model(x).argmax(1))
        >>> [component.name for component in result.components]
        ['clean', 'apgd(eps=0.2, steps=5)']
        >>> print(AutoAttack(eps=8 / 255))
        autoattack(eps=8/255)
    """

    eps: float
    norm: Norm = "Linf"
    version: Version = "standard"
    attacks: tuple[Attack, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ball(self.eps, self.norm)
        check_choice("version", self.version, get_args(Version))
        check_untargeted(self.targeted, "AutoAttack")
        if not isinstance(self.attacks, tuple | list):
            raise ValueError(f"Expected `attacks` to be a tuple of attacks, but got a {type(self.attacks).__name__}.")
        object.__setattr__(self, "attacks", tuple(self.attacks))  # a list has no hash, and no text that can be read
        if bool(self.attacks) != (self.version == "custom"):
            raise ValueError(
                f'Expected `attacks` with version="custom" and only there, but got {len(self.attacks)} attacks with '
                f'version="{self.version}".'
            )
        for attack in self.attacks:
            ball = getattr(attack, "eps", None), getattr(attack, "norm", None)
            if not isinstance(attack, Attack) or attack.targeted or ball != (self.eps, self.norm):
                raise ValueError(
                    f'Expected `attacks` to be untargeted, with eps={self.eps!r} and norm="{self.norm}", '
                    f"but got {attack}."
                )

    def components(self) -> dict[str, Attack]:
        """The attacks by name, in the order in which they run."""
        eps, norm = self.eps, self.norm
        if self.version == "custom":
            return {str(attack): attack for attack in self.attacks}
        ce = APGD(eps, steps=100, norm=norm, objective="ce")
        if self.version == "rand":
            dlr = APGD(eps, steps=100, norm=norm, objective="dlr")
            return {"apgd-ce": EOT(ce, draws=20), "apgd-dlr": EOT(dlr, draws=20)}
        return {
            "apgd-ce": ce,
            "apgd-t": APGDTargeted(eps, steps=100, targets=9, norm=norm),
            "fab-t": FAB(eps, steps=100, targets=9, norm=norm),
            "square": Square(eps, queries=5000, norm=norm, rescale=False),
        }

    def run(
        self,
        model: Model,
        x: Tensor,
        y: Tensor,
        seed: int = 0,
        index: Tensor | None = None,
        execution: Execution | None = None,
        *,
        state: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> AutoAttackResult:
        """Attack the examples and report what each component did.

        Args:
            model: images (N, ...) to logits (N, K).
            x: (N, ...) float32 or float64 in [0, 1].
            y: (N,) int64, the true classes.
            seed: of all random numbers.
            index: (N,) int64, the images' places in their data set; None: 0 ... N - 1.
            execution: precision of crafting, batch size, compilation, CUDA graphs.
            state: a file (.safetensors) or a folder to which the examples found are written after each component; a run
                that was stopped continues from there. A state of another attack, seed, model or data is refused; a
                module is identified by its weights, submodules and their settings, a plain function by its logits.
            progress: called with "clean" and then after each component: its name, how many are done, examples left.
        """
        check_examples(x, y)
        with torch.inference_mode(False):
            journal = Journal(x.detach().clone(), torch.full_like(y, CLEAN))
        index = check_randomness(seed, index, x)
        # Before the first pass: a model may count them.
        known = {} if state is None else _known(model)
        told = progress or (lambda name, done, left: None)
        recording = _Recording(self, journal, index, state, known, told, stop=self.stop)
        # The journal finds rows by their place in the batch; random numbers still belong to `index`.
        place = torch.arange(len(x), device=x.device)
        x_adv, success, victim = recording._run(model, x, y, seed, place, execution, decide=True)
        if not journal.components:  # no example was right, or there was none
            journal.components.append(Component("clean", 0.0 if len(x) else float("nan"), 0.0))
        cost = victim.cost
        return AutoAttackResult(
            x_adv,
            success,
            cost.forwards,
            cost.backwards,
            cost.zero_gradient_share,
            journal.broken_by,
            tuple(journal.components),
        )

    @property
    def _spares_wrong(self) -> bool:
        # A random model that is wrong on a clean image in one draw may be right in the next.
        return super()._spares_wrong and self.version != "rand"

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, index: Tensor) -> Tensor:
        journal = Journal(x.clone(), torch.full_like(y, CLEAN))
        place = torch.arange(len(x), device=x.device)
        return _Recording(self, journal, index, None, {}, lambda *_: None)._perturb(victim, x, y, seed, place)


@dataclass(frozen=True, repr=False, eq=False)
class _Recording(Attack):
    """One run of an AutoAttack, which writes down what happens."""

    attack: AutoAttack
    journal: Journal
    index: Tensor  # of all N examples
    state: str | os.PathLike[str] | None
    known: dict[str, str]  # what the model is known by; nothing of a plain function
    progress: Progress

    def __str__(self) -> str:
        return str(self.attack)

    @property
    def _spares_wrong(self) -> bool:
        return self.attack._spares_wrong

    def _perturb(self, victim: Victim, x: Tensor, y: Tensor, seed: int, place: Tensor) -> Tensor:
        """The examples of the rows at `place`, which are all that are right."""
        some = x[:_LOOKED_AT]
        logits = victim.exact_logits(some)
        self._refuse_few_classes(logits.shape[1])
        self._warn(victim, some)
        journal, index = self.journal, self.index[place]
        N = len(journal.broken_by)
        journal.broken_by[place] = UNBROKEN
        keep = self._keeper(victim, seed, x, y, place, logits)
        # Images that are wrong as they are stand here only where they are attacked all the same.
        wrong = torch.zeros_like(y, dtype=torch.bool) if self._spares_wrong else victim.is_fooled(x, y)
        if not journal.components:
            journal.components.append(Component("clean", int((~wrong).sum()) / N, 0.0))
            self.progress("clean", 0, len(x))
        components = list(self.attack.components().items())
        shares = self._fooled_shares(victim, journal.x_adv[place], y) if self.attack.version == "rand" else None
        if shares is not None:
            # Of the images themselves, which one draw does not tell; an earlier run may have left others here.
            wrong = (shares > 0.5) & (journal.x_adv[place] == x).flatten(1).all(1)
        for number, (name, component) in list(enumerate(components, 1))[len(journal.components) - 1 :]:
            begun = time.perf_counter()
            todo = (journal.broken_by[place] == UNBROKEN).nonzero().squeeze(1)
            if len(todo):
                x_adv = component._perturb(victim, x[todo], y[todo], seed, index[todo])
                if shares is None:
                    better = fooled = victim.is_fooled(x_adv, y[todo])
                else:
                    found = self._fooled_shares(victim, x_adv, y[todo])
                    better, fooled = found > shares[todo], found > 0.5
                    shares[todo] = found.maximum(shares[todo])
                journal.x_adv[place[todo[better]]] = x_adv[better]
                journal.broken_by[place[todo[better & fooled]]] = number
            left = int(((journal.broken_by[place] == UNBROKEN) & ~wrong).sum())
            accuracy = left / N if shares is None else float((1 - shares).sum()) / N
            journal.components.append(Component(name, accuracy, time.perf_counter() - begun))
            keep()
            self.progress(name, number, left)
        journal.broken_by[place[(journal.broken_by[place] == UNBROKEN) & wrong]] = CLEAN
        self._warn_of_square()
        return journal.x_adv[place]

    def _fooled_shares(self, victim: Victim, x_adv: Tensor, y: Tensor) -> Tensor:
        """(N,) shares of draws in which a random model is fooled: one draw would decide by luck."""
        return torch.stack([victim.is_fooled(x_adv, y) for _ in range(_DRAWS)]).double().mean(0)

    def _keeper(
        self, victim: Victim, seed: int, x: Tensor, y: Tensor, place: Tensor, logits: Tensor
    ) -> Callable[[], None]:
        """Take up what the state holds, and return what writes it."""
        if self.state is None:
            return lambda: None
        about = {
            "attack": str(self.attack),
            "seed": str(seed),
            "data": tensor_hash(x, y, place, self.index),
            **(self.known or {"model": tensor_hash(logits)}),
        }
        state = State(self.state, about)
        before = state.load(x, victim.cost)
        if before is not None:
            self.journal.x_adv.copy_(before.x_adv)
            self.journal.broken_by.copy_(before.broken_by)
            self.journal.components.extend(before.components)
        return lambda: state.save(self.journal, victim.cost)

    def _refuse_few_classes(self, K: int) -> None:
        fewest = _FEWEST_CLASSES[self.attack.version]
        if fewest > K:
            raise ValueError(
                f'Expected at least {fewest} classes for AutoAttack\'s version "{self.attack.version}", whose DLR loss '
                f'needs them, but the model has {K}. Use version="custom" with attacks that do without it.'
            )

    def _warn(self, victim: Victim, some: Tensor) -> None:
        if self.attack.version != "rand" and is_random(victim, some):
            warnings.warn(
                'The model seems to be random: passes over the same images differ. Use version="rand", which averages '
                "over draws.",
                RandomModelWarning,
                stacklevel=5,
            )
        if is_dynamic(victim.model, some, min(_FEW, victim.execution.resolved_batch_size)):
            warnings.warn(
                "The model computes derivatives in its forward pass, as models do that optimise at test time. "
                "AutoAttack may be too weak for it: an attack has to take that optimisation into account.",
                DynamicModelWarning,
                stacklevel=5,
            )

    def _warn_of_square(self) -> None:
        done = self.journal.components
        for number, attack in enumerate(self.attack.components().values(), 1):
            gain = done[number - 1].accuracy - done[number].accuracy
            if number > 1 and isinstance(attack, Square) and gain > _SQUARE_GAIN:
                warnings.warn(
                    f"Square, which needs no gradients, lowered the accuracy by another {gain:.2%} after the attacks "
                    "before it: gradients may be masked, and the figure too high. Try more queries, or an adaptive "
                    "attack.",
                    SquareStrongerWarning,
                    stacklevel=5,
                )


def _known(model: Model) -> dict[str, str]:
    """What a module is known by: weights alone would give the figures of another temperature or another class."""
    weights = model_hash(model)
    return {} if weights is None else {"model": weights, "architecture": architecture_hash(model)}
