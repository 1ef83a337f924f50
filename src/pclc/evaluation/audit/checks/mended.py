"""Is there a gradient to attack with, after all that was mended?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene

_USABLE = 0.5


@register(
    "some objective has a gradient",
    kind="doubt",
    question="gradients along the path of PGD, for the objective that has most of them",
    threshold="more than half of them vanish for every objective, or the graph breaks where no identity fits",
    source="Athalye et al. 2018; Pintor et al. 2022",
    next_step="an attack without gradients and with a large budget (--full), or BPDA with a stand-in of your own",
)
def some_gradient(scene: Scene) -> Measured:
    """Without any, only attacks that need no gradient were made."""
    if not scene.subject.differentiable or any(not found.mended for found in scene.subject.breaks):
        return Measured(True, "the model has no gradient that attacks could use")
    name, least = min(scene.trace.vanished.items(), key=lambda item: item[1])
    return Measured(least > _USABLE, f"{least:.1%} vanish for {name}", least)
