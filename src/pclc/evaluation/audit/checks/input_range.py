"""Do the images fill the box that the attack may use?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene

_NARROW = 0.25


@register(
    "input range",
    kind="set-up",
    question="smallest and largest pixel",
    threshold="they span less than a quarter of [0, 1]",
    source="Carlini et al. 2019",
    next_step="see that pixels are divided by 255 once, and that normalisation is inside the model",
)
def input_range(scene: Scene) -> Measured:
    """Pixels that were divided by 255 twice make every eps a giant; other ranges were refused before."""
    low, high = float(scene.x.min()), float(scene.x.max())
    return Measured(high - low < _NARROW, f"pixels in [{low:.3g}, {high:.3g}]", high - low)
