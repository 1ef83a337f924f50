"""Can the claim's attack get to the edge of its ball?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene


@register(
    "steps reach the edge",
    kind="weak attack",
    question="step size times steps of the claim's attack, beside eps",
    threshold="less than eps",
    source="Carlini et al. 2019",
    next_step="a step of at least 2.5 eps / steps",
)
def reach(scene: Scene) -> Measured:
    """Ten steps of 0.01 measure eps 0.1, whatever eps the table says."""
    attack = scene.claimed_with
    distance = attack.alpha * attack.steps
    text = f"{attack.steps} steps of {attack.alpha:.3g} reach {distance:.3g}"
    return Measured(distance < attack.eps * (1 - 1e-9), text, distance / attack.eps if attack.eps else None)
