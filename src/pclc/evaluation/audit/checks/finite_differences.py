"""Is the gradient that of the function that the model computes?"""

import math

import torch
from torch import Tensor

from pclc.attacks import get_objective, random
from pclc.attacks.balls import row_norms
from pclc.attacks.frozen import frozen
from pclc.attacks.gradients import input_gradient
from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.subject import Unmoved
from pclc.evaluation.statistics import lower_bound
from pclc.execution import ieee_fp32, in_batches

_STEPS = (1e-1, 1e-2, 1e-3)  # of the distance that the ball allows
# Flat areas of an image are ties of max-pooling, where a network has a slope on each side and no derivative; a little
# noise, of a tenth of the ball, breaks them.
_NOISE = 0.1
_AGREES = 0.3  # relative difference
_MOST = 0.2


@register(
    "gradient against finite differences",
    kind="gradients",
    question="slope of the margin along its gradient, near the image, by autograd and by differences of three sizes",
    threshold="for surely more than 20 % of the examples no step size agrees within 30 %",
    source="Athalye et al. 2018 (shattered gradients)",
    next_step="BPDA for what is rounded or quantised, EOT for what is random, attacks without gradients",
)
def finite_differences(scene: Scene) -> Measured:
    """On the model as it is, nothing mended: a gradient that is not that of the values leads nowhere."""
    model, objective = scene.subject.model, get_objective("margin")
    root = math.sqrt(math.prod(scene.x.shape[1:]))
    pixel = scene.eps / root if scene.norm == "L2" else scene.eps
    reach = pixel * root

    def disagree(x: Tensor, y: Tensor) -> Tensor:
        _, _, grad = input_gradient(Unmoved(model), objective, x, y)
        slope = row_norms(grad).flatten()
        direction = grad / row_norms(grad).clamp(min=torch.finfo(grad.dtype).tiny)
        worst = torch.full_like(slope, torch.inf)
        for step in _STEPS:
            h = step * reach
            ahead, behind = (objective(model(x + way * h * direction), y) for way in (1, -1))
            measured = (ahead - behind) / (2 * h)
            larger = torch.maximum(measured.abs(), slope)
            error = torch.where(larger > 0, (measured - slope).abs() / larger.clamp(min=1e-30), 0.0)
            worst = torch.minimum(worst, error)
        return (worst > _AGREES) | (slope == 0)

    noise = random.uniform(scene.x.shape[1:], scene.seed, scene.index, 0, 0, scene.x.dtype)
    x = scene.x + _NOISE * pixel * (2 * noise - 1)
    with torch.no_grad(), frozen(model), ieee_fp32():
        wrong = int(in_batches(disagree, x, scene.y, size=scene.execution.resolved_batch_size).sum())
    fires = lower_bound(wrong, len(scene.y), 1 - scene.level) > _MOST
    return Measured(fires, f"for {wrong} of {len(scene.y)} no step size agrees", wrong / len(scene.y))
