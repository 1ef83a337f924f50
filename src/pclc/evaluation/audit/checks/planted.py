"""Is an adversarial example found that is known to be there?"""

import torch
from torch import Tensor, nn

from pclc.attacks import APGD
from pclc.attacks.balls import random_point
from pclc.attacks.frozen import frozen
from pclc.attacks.types import Model
from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.standing import run_quietly
from pclc.evaluation.statistics import upper_bound
from pclc.execution import Execution

_INNER, _SHRINK = 32, 0.5
_FOUND = 0.8
_STEPS = 40


@register(
    "planted examples are found",
    kind="doubt",
    question="whether APGD-40 finds examples planted at the edge of the ball, behind a linear readout of the features",
    threshold="surely fewer than 80 % are found",
    source="Zimmermann et al. 2022 (binarization test, simplified: a readout in closed form, none trained)",
    next_step="attacks without gradients, BPDA, EOT: the gradients of the features lead nowhere",
)
def planted(scene: Scene) -> Measured:
    """A twin with the model's own features, made such that one point of the ball is adversarial, and few others."""
    if scene.subject.random:
        return Measured(None, "the features are random")
    features = _features(scene.subject.craft, scene.x)
    batches = torch.split(torch.arange(len(scene.x), device=scene.x.device), scene.execution.resolved_batch_size)
    hit = torch.cat([_found(scene, features, rows) for rows in batches])
    if not len(hit):
        return Measured(None, "no random point could be told apart from the inner ones")
    n, found = len(hit), int(hit.sum())
    return Measured(upper_bound(found, n, 1 - scene.level) < _FOUND, f"{found} of {n} are found", found / n)


def _found(scene: Scene, features: Model, rows: Tensor) -> Tensor:
    """Whether it is found, of those examples of a batch whose planted point can be told apart from the inner ones."""
    x, index = scene.x[rows], scene.index[rows]
    edge = random_point(x, scene.eps, scene.norm, scene.seed, index, draw=1000)
    if scene.norm == "Linf":  # to a corner
        edge = (x + scene.eps * (edge - x).sign()).clamp(0, 1)
    with torch.no_grad(), frozen(scene.subject.craft):
        here, there = features(x.clone()), features(edge)  # into which the model may write
        readout = there - here
        goal = (readout * there).sum(1)
        drawn = (random_point(x, _SHRINK * scene.eps, scene.norm, scene.seed, index, draw) for draw in range(_INNER))
        inner = torch.stack([(readout * features(point)).sum(1) for point in drawn]).amax(0)
    separable = goal > inner
    if not separable.any():
        return separable[separable]
    x, index, readout, threshold = (each[separable] for each in (x, index, readout, (goal + inner) / 2))

    def twin(x: Tensor) -> Tensor:  # rows stay in order: one batch, and stop="never" drops none
        score = (readout * features(x)).sum(1) - threshold
        return torch.stack([torch.zeros_like(score), score], dim=1)

    execution = Execution(device=scene.execution.device, precision="fp32", batch_size=len(x), cuda_graphs=False)
    attack = APGD(scene.eps, _STEPS, norm=scene.norm, objective="margin", stop="never")
    with frozen(scene.subject.craft):
        x_adv = run_quietly(attack, twin, x, torch.zeros_like(index), scene.seed, index, execution)
        with torch.no_grad():
            return twin(x_adv)[:, 1] > 0


def _features(model: Model, x: Tensor) -> Model:
    """What enters the last linear layer, where there is one and it is the last; else the logits."""
    if not isinstance(model, nn.Module):
        return model
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    seen: list[Tensor] = []

    def record(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        seen[:] = [inputs[0], output]

    def logits(x: Tensor) -> Tensor:
        hooks = [layer.register_forward_hook(record) for layer in layers]
        try:
            return model(x)  # type: ignore[no-any-return]
        finally:
            for hook in hooks:
                hook.remove()

    with torch.no_grad(), frozen(model):
        shape = logits(x[:2].clone()).shape
    if not seen or seen[1].shape != shape or seen[0].dim() != 2:
        return model

    def features(x: Tensor) -> Tensor:
        logits(x)
        return seen[0]

    return features
