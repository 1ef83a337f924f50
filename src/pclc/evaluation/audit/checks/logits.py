"""Does the model return logits?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene


@register(
    "logits, not probabilities",
    kind="set-up",
    question="sign and sum of the outputs",
    threshold="every row is non-negative and sums to 1",
    source="Carlini et al. 2019; AutoAttack's warnings",
    next_step="take the softmax off; the audit attacks through the logarithm",
)
def logits_not_probabilities(scene: Scene) -> Measured:
    """A softmax inside the model doubles the one in the loss, and its gradients vanish where it is saturated."""
    found = scene.subject.probabilities
    return Measured(found, "outputs are probabilities" if found else "outputs are no probabilities")
