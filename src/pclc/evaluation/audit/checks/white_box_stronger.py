"""The paper's second argument: white-box attacks are stronger than black-box ones."""

from dataclasses import replace

from pclc.attacks import Square, Transfer
from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import paired_test

_QUERIES = 200


@register(
    "masking 2: white-box attacks are stronger",
    kind="weak attack",
    question="examples that only a black-box attack (a transfer from the twin, else Square), and that only PGD turns",
    threshold="the black-box attack surely turns more (exact paired test, corrected)",
    source="the paper, Identifying gradient masking (2); Athalye et al. 2018; Papernot et al. 2017",
    next_step="another objective; the transfer itself as an attack",
)
def white_box_stronger(scene: Scene) -> Measured:
    """Who sees the gradients and finds less than who does not has gradients of no use."""
    if scene.twin is not None:
        name, blind = "transfer", scene.right_after(Transfer(replace(scene.claimed_with), scene.twin))
    else:
        name, blind = "Square", scene.right_after(Square(scene.eps, _QUERIES, norm=scene.norm))
    seeing = scene.right_after(scene.claimed_with)
    only_blind, only_seeing = int((seeing & ~blind).sum()), int((blind & ~seeing).sum())
    fires = paired_test(only_blind, only_seeing, "greater") < scene.level
    text = f"only {name} turns {only_blind}, only PGD {only_seeing} of {len(blind)}"
    return Measured(fires, text, only_blind - only_seeing)
