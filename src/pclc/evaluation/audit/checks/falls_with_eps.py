"""The paper's third argument: accuracy falls as eps grows."""

from dataclasses import replace

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.statistics import lower_bound, paired_test


@register(
    "masking 3: accuracy falls with eps",
    kind="weak attack",
    question="accuracy under the claim's PGD at eps and at twice eps, with steps twice as long",
    threshold="it surely rises, or does not fall by a single example though surely above chance (exact, corrected)",
    source="the paper, Identifying gradient masking (3); Carlini et al. 2019",
    next_step="another objective, more steps",
)
def falls_with_eps(scene: Scene) -> Measured:
    """A larger ball holds the smaller one, so that an attack that searches it can only gain."""
    attack = scene.claimed_with
    larger = min(2 * attack.eps, 1.0) if scene.norm == "Linf" else 2 * attack.eps
    small = scene.right_after(attack)
    large = scene.right_after(replace(attack, eps=larger, alpha=attack.alpha * larger / attack.eps))
    rises = paired_test(int((large & ~small).sum()), int((small & ~large).sum()), "greater") < scene.level
    above = lower_bound(int(small.sum()), len(small), 1 - scene.level) > 1 / scene.subject.classes
    stays = bool(above and large.sum() >= small.sum())
    text = f"{int(small.sum())} of {len(small)} right at eps {attack.eps:.3g}, {int(large.sum())} at {larger:.3g}"
    return Measured(rises or stays, text, float(large.double().mean() - small.double().mean()))
