"""Did the audit's own attacks do what they could? Looked at when they are done."""

import torch

from pclc.attacks import ProbabilityMargin
from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.ladder import strongest
from pclc.evaluation.audit.randomness import GAIN
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.standing import right_after
from pclc.evaluation.statistics import lower_bound

_GAIN = 0.05


@register(
    "black-box attacks find nothing more",
    kind="doubt",
    question="examples that survived all attacks with gradients and fell to one without",
    threshold="surely more than 5 % of those that survived",
    source="AutoAttack's warnings (Square after APGD and FAB)",
    next_step="more queries; find out why gradients do not lead there",
)
def black_box_gains(scene: Scene) -> Measured:
    """Where blind search does better, gradients lead astray, and blind search itself is a weak measure."""
    if scene.gained_blind is None or not scene.gained_blind[1]:
        return Measured(None, "nothing survived, or the claim is refuted")
    gained, stood = scene.gained_blind
    fires = lower_bound(gained, stood, 1 - scene.level) > _GAIN
    return Measured(fires, f"{gained} of {stood}", gained / stood)


@register(
    "the audit has converged",
    kind="doubt",
    question="survivors of the audit that fall to twice the steps and other starts, on two objectives",
    threshold="surely more than 5 % of them",
    source="Carlini et al. 2019",
    next_step="use the next larger mode (standard, --full)",
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
    left = torch.ones_like(y, dtype=torch.bool)
    for attack in attacks:
        left &= right_after(attack, scene.subject.craft, x, y, scene.seed + 1, scene.execution)
    gained = int((~left).sum())
    fires = lower_bound(gained, len(y), 1 - scene.level) > _GAIN
    return Measured(fires, f"{gained} of {len(y)} survivors fall", gained / len(y))


@register(
    "EOT has converged",
    kind="doubt",
    question="how far the last doubling of EOT's draws lowered the expected accuracy of a random model",
    threshold=f"by {100 * GAIN:g} point or more",
    source="Athalye et al. 2018; Gao et al. 2022",
    next_step="more draws: the next larger mode (standard, --full)",
)
def draws_suffice(scene: Scene) -> Measured:
    """An attack that still gains from more draws has not seen the expected loss."""
    if scene.gained_draws is None:
        return Measured(None, "no attack climbed means over draws")
    return Measured(scene.gained_draws >= GAIN, f"{100 * scene.gained_draws:.1f} points", scene.gained_draws)
