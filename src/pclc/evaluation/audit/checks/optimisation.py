"""Does the model optimise something when it is asked?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene


@register(
    "no optimisation inside forward",
    kind="doubt",
    question="derivatives asked for inside a forward pass",
    threshold="any",
    source="AutoAttack's warnings; Croce et al. 2022 (adaptive test-time defences)",
    next_step="an attack that follows what the model does there, or a transfer from the model without it",
)
def no_optimisation(scene: Scene) -> Measured:
    """Gradients past an inner optimisation are not those of what the model computes."""
    found = scene.subject.dynamic
    return Measured(found, "the forward pass asks for derivatives" if found else "the forward pass asks for none")
