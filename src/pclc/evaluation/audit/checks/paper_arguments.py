"""The paper's three arguments against gradient masking."""

from dataclasses import replace

from pclc.attacks import FGSM, Square, Transfer
from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound, paired_test

_QUERIES = 200


@register(
    "masking 1: iterative attacks are stronger",
    kind="weak attack",
    question="examples that only FGSM turns, beside those that only the claim's PGD turns",
    threshold="FGSM surely turns more (exact paired test, corrected for the number of checks)",
    source="the paper, Identifying gradient masking (1); Athalye et al. 2018",
    next_step="another objective, more steps, a smaller step",
)
def iterative_stronger(scene: Scene) -> Measured:
    """Forty steps that do less than one have lost their way."""
    one = scene.right_after(FGSM(scene.eps, norm=scene.norm, stop="never"))
    many = scene.right_after(scene.claimed_with)
    only_one, only_many = int((many & ~one).sum()), int((one & ~many).sum())
    fires = paired_test(only_one, only_many, "greater") < scene.level
    return Measured(fires, f"only FGSM turns {only_one}, only PGD {only_many} of {len(one)}", only_one - only_many)


@register(
    "masking 2: white-box attacks are stronger",
    kind="weak attack",
    question="examples that only a black-box attack (a transfer from the twin, else Square) or only PGD turns",
    threshold="the black-box attack surely turns more (exact paired test, corrected)",
    source="the paper, Identifying gradient masking (2); Athalye et al. 2018; Papernot et al. 2017",
    next_step="another objective; the transfer itself as an attack",
)
def white_box_stronger(scene: Scene) -> Measured:
    """Who sees the gradients and finds less than who does not has gradients of no use."""
    if scene.twin is not None:
        name, blind = "transfer", scene.right_after(Transfer(scene.claimed_with, scene.twin))
    else:
        name, blind = "Square", scene.right_after(Square(scene.eps, _QUERIES, norm=scene.norm))
    seeing = scene.right_after(scene.claimed_with)
    only_blind, only_seeing = int((seeing & ~blind).sum()), int((blind & ~seeing).sum())
    fires = paired_test(only_blind, only_seeing, "greater") < scene.level
    text = f"only {name} turns {only_blind}, only PGD {only_seeing} of {len(blind)}"
    return Measured(fires, text, only_blind - only_seeing)


@register(
    "masking 3: accuracy falls with eps",
    kind="weak attack",
    question="accuracy under the claim's PGD at eps and at twice eps, with steps twice as long",
    threshold="it surely rises, or it is surely above chance and does not fall by a single example (exact, corrected)",
    source="the paper, Identifying gradient masking (3); Carlini et al. 2019",
    next_step="another objective, more steps",
)
def falls_with_eps(scene: Scene) -> Measured:
    """A larger ball holds the smaller one, so that an attack that searches it can only gain."""
    attack = scene.claimed_with
    larger = min(2 * attack.eps, 1.0) if scene.norm == "Linf" else 2 * attack.eps
    small = scene.right_after(attack)
    large = scene.right_after(replace(attack, eps=larger, alpha=attack.alpha * larger / attack.eps))
    rises = paired_test(int((large & ~small).sum()), int((small & ~large).sum()), "greater") < scene.level
    above = lower_bound(int(small.sum()), len(small), 1 - scene.level) > 1 / scene.subject.classes
    stays = bool(above and large.sum() >= small.sum())
    text = f"{int(small.sum())} of {len(small)} right at eps {attack.eps:.3g}, {int(large.sum())} at {larger:.3g}"
    return Measured(rises or stays, text, float(large.double().mean() - small.double().mean()))
