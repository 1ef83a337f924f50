"""Does the audit's own attack find something when it may do everything?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.ladder import strongest
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound

_LEFT = 0.05


@register(
    "an unbounded attack succeeds",
    kind="doubt",
    question="accuracy under the audit's margin attack when any image of the box is allowed",
    threshold="surely more than 5 % are left",
    source="Carlini et al. 2019; Athalye et al. 2018",
    next_step="attacks without gradients, BPDA, a smoother stand-in for the model",
)
def unbounded(scene: Scene) -> Measured:
    """There is an image of another class in the box: an attack that cannot get there cannot find nearer ones."""
    if scene.subject.random:
        return Measured(None, "a random model is wrong now and then, whatever the attack does")
    eps = 1.0 if scene.norm == "Linf" else float(scene.x[0].numel()) ** 0.5
    right = scene.right_after(strongest(scene.norm, eps))
    fires = lower_bound(int(right.sum()), len(right), 1 - scene.level) > _LEFT
    return Measured(fires, f"{int(right.sum())} of {len(right)} are left", float(right.double().mean()))
