"""Does the gradient get from the logits to the image?"""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene


@register(
    "gradient graph",
    kind="set-up",
    question="the way of the gradient through the modules, with hooks",
    threshold="a module or the model's own code ends the graph, or has a derivative of zero or NaN",
    source="Athalye et al. 2018 (shattered gradients, BPDA)",
    next_step="BPDA with a stand-in for the place named; the audit tries the identity where shapes allow it",
)
def gradient_graph(scene: Scene) -> Measured:
    """Names the places; what was mended is still named, because other people's attacks do not mend it."""
    breaks, arrives = scene.subject.breaks, scene.subject.differentiable
    places = dict.fromkeys(f"{found}, {'mended' if found.mended and arrives else 'not mended'}" for found in breaks)
    return Measured(bool(breaks), "; ".join(places) or "the gradient arrives at the image", len(breaks))
