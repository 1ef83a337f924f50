"""Would the audit's own attack find more with a larger budget?"""

from pclc.attacks import ProbabilityMargin
from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.ladder import strongest
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.standing import right_after
from pclc.evaluation.statistics import lower_bound

_GAIN = 0.05


@register(
    "the audit has converged",
    kind="doubt",
    question="survivors of the audit that fall to twice the steps and other starts, on two objectives",
    threshold="surely more than 5 % of them",
    source="Carlini et al. 2019",
    next_step="the next larger mode (standard, --full)",
)
def converged(scene: Scene) -> Measured:
    """What still falls says that the worst case is not reached."""
    if scene.survivors is None or not len(scene.survivors[0]):
        return Measured(None, "nothing survives, or the claim is refuted")
    x, y = scene.survivors
    attacks = (
        strongest(scene.norm, scene.eps, steps=200, restarts=2),
        ProbabilityMargin(scene.eps, 200, norm=scene.norm, logit_scale=0.1),
    )
    left = y == y
    for attack in attacks:
        left &= right_after(attack, scene.subject.craft, x, y, scene.seed + 1, scene.execution)
    gained = int((~left).sum())
    fires = lower_bound(gained, len(y), 1 - scene.level) > _GAIN
    return Measured(fires, f"{gained} of {len(y)} survivors fall", gained / len(y))
