"""Would the claim's attack find more with a larger budget?"""

from dataclasses import replace

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound

_GAIN = 0.02


@register(
    "twice the steps and restarts gain nothing",
    kind="weak attack",
    question="examples that the claim's PGD leaves, and that fall to it with twice the steps and two restarts",
    threshold="surely more than 2 % of the examples",
    source="Carlini et al. 2019; Pintor et al. 2022",
    next_step="steps and restarts until nothing is gained; the audit's attacks have more of both",
)
def more_steps(scene: Scene) -> Measured:
    """An attack that has not converged measures its budget."""
    attack = scene.claimed_with
    right = scene.right_after(attack)
    again = scene.right_after(replace(attack, steps=2 * attack.steps, restarts=2, stop="success"))
    gained = int((right & ~again).sum())
    fires = lower_bound(gained, len(right), 1 - scene.level) > _GAIN
    return Measured(fires, f"{gained} more of {len(right)}", gained / len(right))
