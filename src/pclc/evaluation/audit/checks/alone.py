"""Does the model look at each image by itself?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.traps import MIXED

ALONE = "each image by itself"


@register(
    ALONE,
    kind="set-up",
    question="logits of an image among others, in all places of a batch of copies of itself, and after others like it",
    threshold=f'they differ by more than {100 * MIXED:g} % of their size; the verdict is then "cannot judge"',
    source="the threat model: one image is attacked and judged, not a batch",
    next_step="running statistics in BatchNorm, nothing taken over the first dimension, nothing kept of other images; "
    "then measure the claim again",
)
def by_itself(scene: Scene) -> Measured:
    """Where images mix, who is right depends on the others, and a witness proves nothing about its image."""
    if scene.subject.random:
        return Measured(None, "the logits are random")
    mixed = scene.subject.mixing
    text = f"other images, in the batch or before it, change the logits by up to {mixed:.1%} of their size"
    return Measured(mixed > MIXED, text, mixed)
