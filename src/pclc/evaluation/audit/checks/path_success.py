"""Did the claim's attack pass by what it was looking for?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound

_MOST = 0.01


@register(
    "success on the path counts",
    kind="weak attack",
    question="examples that were fooled on the path of PGD, but not by its last iterate",
    threshold="surely more than 1 % of the examples",
    source="Pintor et al. 2022",
    next_step="keep the first success: stop='success', which the audit does",
)
def path_success(scene: Scene) -> Measured:
    """A table of last iterates counts them as safe."""
    fooled = scene.trace.fooled
    missed = int((fooled.any(0) & ~fooled[-1]).sum())
    fires = lower_bound(missed, fooled.shape[1], 1 - scene.level) > _MOST
    return Measured(fires, f"{missed} of {fooled.shape[1]}", missed / fooled.shape[1])
