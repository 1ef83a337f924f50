"""Was the model handed over in eval mode?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene


@register(
    "eval mode",
    kind="set-up",
    question="modules in train mode when the model came",
    threshold="any",
    source="Carlini et al. 2019",
    next_step="call model.eval() where the claimed figure was measured, and measure it again",
)
def eval_mode(scene: Scene) -> Measured:
    """Dropout and BatchNorm in train mode change a figure; the audit itself runs in eval mode."""
    training = scene.subject.training
    return Measured(training > 0, f"{training} modules came in train mode", training)
