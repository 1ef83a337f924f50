"""Did the claim's attack do what it could?"""

from dataclasses import replace

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound

_GAIN = 0.02
_RISE, _STILL_RISING = 0.1, 0.2
_MISSED = 0.01


@register(
    "twice the steps and restarts gain nothing",
    kind="weak attack",
    question="examples that survive the claim's PGD and fall to it with twice the steps and two restarts",
    threshold="surely more than 2 % of the examples",
    source="Carlini et al. 2019; Pintor et al. 2022",
    next_step="add steps and restarts until nothing more is gained; the audit's attacks have more of both",
)
def more_steps(scene: Scene) -> Measured:
    """An attack that has not converged measures its budget."""
    attack = scene.claimed_with
    right = scene.right_after(attack)
    again = scene.right_after(replace(attack, steps=2 * attack.steps, restarts=2, stop="success"))
    gained = int((right & ~again).sum())
    fires = lower_bound(gained, len(right), 1 - scene.level) > _GAIN
    return Measured(fires, f"{gained} more of {len(right)}", gained / len(right))


@register(
    "loss at rest at the end",
    kind="weak attack",
    question="survivors whose loss rose by at least 10 % of its whole rise over the last tenth of the steps",
    threshold="surely more than 20 % of them",
    source="Carlini et al. 2019; Pintor et al. 2022",
    next_step="more steps, a larger step",
)
def loss_rising(scene: Scene) -> Measured:
    """Who is still climbing has not arrived."""
    values, left = scene.trace.values, ~scene.trace.fooled[-1]
    if not left.any():
        return Measured(None, "nothing survives the attack")
    tenth = len(values) // 10
    late = values[-1] - values[-1 - tenth]
    whole = values.amax(0) - values[0]
    rising = int((left & (late > _RISE * whole) & (whole > 0)).sum())
    n = int(left.sum())
    fires = lower_bound(rising, n, 1 - scene.level) > _STILL_RISING
    return Measured(fires, f"the loss of {rising} of {n} survivors is still rising", rising / n)


@register(
    "success on the path counts",
    kind="weak attack",
    question="examples that were fooled on the path of PGD but not by its last iterate",
    threshold="surely more than 1 % of the examples",
    source="Pintor et al. 2022",
    next_step="keep the first success (stop='success'), as the audit does",
)
def path_success(scene: Scene) -> Measured:
    """A table of last iterates counts them as safe."""
    fooled = scene.trace.fooled
    missed = int((fooled.any(0) & ~fooled[-1]).sum())
    fires = lower_bound(missed, fooled.shape[1], 1 - scene.level) > _MISSED
    return Measured(fires, f"{missed} of {fooled.shape[1]}", missed / fooled.shape[1])
