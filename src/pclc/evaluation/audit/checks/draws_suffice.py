"""For a random model: do more draws help the attack?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.randomness import GAIN
from pclc.evaluation.audit.scene import Scene


@register(
    "EOT has converged",
    kind="doubt",
    question="what the last doubling of EOT's draws took from the expected accuracy of a random model",
    threshold=f"{100 * GAIN:g} points or more",
    source="Athalye et al. 2018; Gao et al. 2022",
    next_step="more draws: the next larger mode (standard, --full)",
)
def draws_suffice(scene: Scene) -> Measured:
    """An attack that still gains from more draws has not seen the expected loss."""
    if scene.gained_draws is None:
        return Measured(None, "no means over draws were climbed")
    return Measured(scene.gained_draws >= GAIN, f"{100 * scene.gained_draws:.1f} points", scene.gained_draws)
