"""Does the model say the same when it is asked again?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene


@register(
    "same output every time",
    kind="set-up",
    question="logits of the same images, and of blends of two, over 5 passes",
    threshold="they differ in a prediction, or by more than rounding",
    source="Athalye et al. 2018; AutoAttack's warnings",
    next_step="means over draws (EOT), and scores that are expected errors over fresh draws; the audit does both",
)
def deterministic(scene: Scene) -> Measured:
    """A random model is scored by its expected error, and attacked through means over draws."""
    return Measured(scene.subject.random, "5 passes differ" if scene.subject.random else "5 passes agree")
