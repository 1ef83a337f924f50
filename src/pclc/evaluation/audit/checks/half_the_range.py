"""Is anything left where every image can be made grey?"""

from dataclasses import replace

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound


@register(
    "eps 0.5 leaves at most chance",
    kind="weak attack",
    question="accuracy under the claim's PGD at eps 0.5 in Linf, where every image can become the same grey",
    threshold="surely above the share of the most frequent class",
    source="Carlini et al. 2019",
    next_step="another objective, more steps",
)
def half_the_range(scene: Scene) -> Measured:
    """On the grey image a model says one class for all, so no accuracy above the most frequent one is real."""
    if scene.norm != "Linf":
        return Measured(None, "eps 0.5 has that meaning in Linf only")
    attack = scene.claimed_with
    right = scene.right_after(replace(attack, eps=0.5, alpha=0.05))
    chance = float(scene.y.bincount().max()) / len(scene.y)
    fires = lower_bound(int(right.sum()), len(right), 1 - scene.level) > chance
    return Measured(fires, f"{int(right.sum())} of {len(right)} right", float(right.double().mean()))
