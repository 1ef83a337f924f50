"""The paper's first argument: iterative attacks are stronger than one step."""

from pclc.attacks import FGSM
from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import paired_test


@register(
    "masking 1: iterative attacks are stronger",
    kind="weak attack",
    question="examples that only FGSM, and that only the claim's PGD turns",
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
