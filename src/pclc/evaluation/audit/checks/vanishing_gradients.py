"""Has the claim's objective a gradient along the path of the attack?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene

USABLE = 0.05


@register(
    "vanishing gradients",
    kind="gradients",
    question="gradients of cross-entropy along the path of PGD whose every entry is zero or denormal",
    threshold="more than 5 % of them",
    source="Athalye et al. 2018; Pintor et al. 2022",
    next_step="attack margins and scaled logits, as the audit does",
)
def vanishing_gradients(scene: Scene) -> Measured:
    """An attack that does not move finds nothing, whatever there is."""
    share = scene.trace.vanished["ce"]
    others = ", ".join(f"{name} {value:.1%}" for name, value in scene.trace.vanished.items() if name != "ce")
    return Measured(share > USABLE, f"{share:.1%} vanish for cross-entropy ({others})", share)
