"""What is seen of the model and the images as they come."""

from pclc.evaluation.audit.finding import Measured, register
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.traps import MIXED

ALONE = "each image by itself"
_NARROW = 0.25


@register(
    "eval mode",
    kind="set-up",
    question="modules in train mode when the model was given",
    threshold="any",
    source="Carlini et al. 2019",
    next_step="call model.eval() where the claimed figure was measured, and measure it again",
)
def eval_mode(scene: Scene) -> Measured:
    """Dropout and BatchNorm in train mode change a figure; the audit itself runs in eval mode."""
    training = scene.subject.training
    return Measured(training > 0, f"{training} modules were in train mode", training)


@register(
    "same output every time",
    kind="set-up",
    question="logits of the same images, and of blends of two, over 5 passes",
    threshold="predictions differ, or logits by more than rounding",
    source="Athalye et al. 2018; AutoAttack's warnings",
    next_step="attack means over draws (EOT) and report expected errors over fresh draws, as the audit does",
)
def deterministic(scene: Scene) -> Measured:
    """A random model is scored by its expected error, and attacked through means over draws."""
    return Measured(scene.subject.random, "5 passes differ" if scene.subject.random else "5 passes agree")


@register(
    ALONE,
    kind="set-up",
    question="logits of an image among others, in each place of a batch of copies of itself, and after similar images",
    threshold=f'they differ by more than {100 * MIXED:g} % of their size; the verdict is then "cannot judge"',
    source="the threat model: one image is attacked and judged, not a batch",
    next_step="use running statistics in BatchNorm, compute nothing over the first dimension, keep nothing of other "
    "images; then measure the claim again",
)
def by_itself(scene: Scene) -> Measured:
    """Where images mix, who is right depends on the others, and a witness proves nothing about its image."""
    if scene.subject.random:
        return Measured(None, "the logits are random")
    mixed = scene.subject.mixing
    text = f"other images, in the batch or before it, change the logits by up to {mixed:.1%} of their size"
    return Measured(mixed > MIXED, text, mixed)


@register(
    "logits, not probabilities",
    kind="set-up",
    question="sign and sum of the outputs",
    threshold="every row is non-negative and sums to 1",
    source="Carlini et al. 2019; AutoAttack's warnings",
    next_step="remove the softmax; the audit attacks through the logarithm",
)
def logits_not_probabilities(scene: Scene) -> Measured:
    """A softmax inside the model doubles the one in the loss, and its gradients vanish where it is saturated."""
    found = scene.subject.probabilities
    return Measured(found, "outputs are probabilities" if found else "outputs are not probabilities")


@register(
    "gradient graph",
    kind="set-up",
    question="the path of the gradient through the modules, seen by hooks",
    threshold="a module or the model's own code ends the graph, or has a derivative of zero or NaN",
    source="Athalye et al. 2018 (shattered gradients, BPDA)",
    next_step="BPDA with a stand-in for the place named; the audit tries the identity where shapes allow it",
)
def gradient_graph(scene: Scene) -> Measured:
    """Names the places; what was mended is still named, because other people's attacks do not mend it."""
    breaks, arrives = scene.subject.breaks, scene.subject.differentiable
    places = dict.fromkeys(f"{found}, {'mended' if found.mended and arrives else 'not mended'}" for found in breaks)
    return Measured(bool(breaks), "; ".join(places) or "the gradient arrives at the image", len(breaks))


@register(
    "input range",
    kind="set-up",
    question="smallest and largest pixel",
    threshold="they span less than a quarter of [0, 1]",
    source="Carlini et al. 2019",
    next_step="make sure that pixels are divided by 255 only once, and that normalisation is inside the model",
)
def input_range(scene: Scene) -> Measured:
    """Pixels that were divided by 255 twice make every eps a giant; other ranges were refused before."""
    low, high = float(scene.x.min()), float(scene.x.max())
    return Measured(high - low < _NARROW, f"pixels in [{low:.3g}, {high:.3g}]", high - low)


@register(
    "no optimisation inside forward",
    kind="doubt",
    question="derivatives computed inside a forward pass",
    threshold="any",
    source="AutoAttack's warnings; Croce et al. 2022 (adaptive test-time defences)",
    next_step="an attack that follows what the model does there, or a transfer from the model without it",
)
def no_optimisation(scene: Scene) -> Measured:
    """Gradients past an inner optimisation are not those of what the model computes."""
    found = scene.subject.dynamic
    return Measured(found, "the forward pass computes derivatives" if found else "the forward pass computes none")
