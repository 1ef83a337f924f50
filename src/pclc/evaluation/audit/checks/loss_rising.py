"""Was the claim's attack still climbing when it ended?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound

_RISE, _MOST = 0.1, 0.2


@register(
    "loss at rest at the end",
    kind="weak attack",
    question="examples left right whose loss rose over the last tenth of the steps by 10 % of its whole rise or more",
    threshold="surely more than 20 % of them",
    source="Carlini et al. 2019; Pintor et al. 2022",
    next_step="more steps, a larger step",
)
def loss_rising(scene: Scene) -> Measured:
    """Who is still climbing has not arrived."""
    values, left = scene.trace.values, ~scene.trace.fooled[-1]
    if not left.any() or len(values) < 10:
        return Measured(None, "the attack leaves nothing" if len(values) >= 10 else "too few steps to tell")
    tenth = len(values) // 10
    late = values[-1] - values[-1 - tenth]
    whole = values.amax(0) - values[0]
    rising = int((left & (late > _RISE * whole) & (whole > 0)).sum())
    n = int(left.sum())
    fires = lower_bound(rising, n, 1 - scene.level) > _MOST
    return Measured(fires, f"{rising} of {n} left are still rising", rising / n)
