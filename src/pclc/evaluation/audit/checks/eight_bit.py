"""Do adversarial examples survive as images that a file can store?"""

from pclc.attacks.decide import is_fooled
from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.ladder import strongest
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.standing import run_quietly
from pclc.evaluation.budget import is_storable, toward_image
from pclc.evaluation.statistics import lower_bound

_LOST = 0.1


@register(
    "8-bit rounding",
    kind="set-up",
    question="adversarial examples that no longer fool once rounded to k/255, toward the image",
    threshold="surely more than 10 % of them",
    source="Carlini et al. 2019",
    next_step="report the figure of stored images too: pclc evaluate --eight-bit",
)
def eight_bit(scene: Scene) -> Measured:
    """A witness stands as it is; that rounding undoes it is worth knowing."""
    if scene.subject.random:
        return Measured(None, "a random model is right again now and then, rounded or not")
    if not is_storable(scene.x):
        return Measured(None, "the images themselves are not multiples of 1/255")
    attack = strongest(scene.norm, scene.eps, steps=20)
    craft, run = scene.subject.craft, scene.execution
    x_adv = run_quietly(attack, craft, scene.x, scene.y, scene.seed, scene.index, run)
    hit = is_fooled(scene.subject.model, x_adv, scene.y, execution=run)
    if not hit.any():
        return Measured(None, "no adversarial example was found")
    x_adv, x, y = x_adv[hit], scene.x[hit], scene.y[hit]
    lost = int((~is_fooled(scene.subject.model, toward_image(x_adv, x), y, execution=run)).sum())
    fires = lower_bound(lost, len(y), 1 - scene.level) > _LOST
    return Measured(fires, f"{lost} of {len(y)} are undone", lost / len(y))
