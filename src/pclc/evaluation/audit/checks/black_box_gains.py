"""Did attacks without gradients find what those with gradients left?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound

_GAIN = 0.05


@register(
    "black-box attacks find nothing more",
    kind="doubt",
    question="examples that stood after all attacks with gradients and fell to one without",
    threshold="surely more than 5 % of those that stood",
    source="AutoAttack's warnings (Square after APGD and FAB)",
    next_step="more queries, and a look at why gradients do not lead there",
)
def black_box_gains(scene: Scene) -> Measured:
    """Where blind search does better, gradients lead astray, and blind search itself is a weak measure."""
    if scene.gained_blind is None or not scene.gained_blind[1]:
        return Measured(None, "nothing stood, or the claim is refuted")
    gained, stood = scene.gained_blind
    fires = lower_bound(gained, stood, 1 - scene.level) > _GAIN
    return Measured(fires, f"{gained} of {stood}", gained / stood)
