"""The probability margin attack: the directions of probabilities' gradients, also where those vanish."""

import pytest
import torch
from attack_zoo import Scaled, SmallNet, digits, examples

from pclc.attacks import PGD, ProbabilityMargin, ZeroGradientWarning
from pclc.attacks.md import Terms, two_stages
from pclc.attacks.objectives import margin
from pclc.attacks.probability_margin import probability_terms
from pclc.attacks.victim import Victim
from pclc.execution import Execution


def unit(grad):
    return grad / grad.norm(dim=1, keepdim=True)


def naive_terms(scale):
    """The true class's and the strongest other class's probability, and their difference, as they are written."""

    def f(logits):
        return (scale * logits).softmax(1)

    def true(logits, y):
        return -f(logits).gather(1, y[:, None]).squeeze(1)

    def other(logits, y):
        return margin(f(logits), y) - true(logits, y)

    return true, other, lambda logits, y: margin(f(logits), y)


@pytest.mark.parametrize("scale", [1.0, 0.3])
@pytest.mark.parametrize("classes", [2, 5])
def test_directions_are_those_of_probabilities(classes, scale):
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, classes, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (200,), generator=generator)
    for ours, theirs in zip(probability_terms(scale), naive_terms(scale), strict=True):
        grads = []
        for term in (ours, theirs):
            leaf = logits.clone().requires_grad_()
            grads += torch.autograd.grad(term(leaf, y).sum(), leaf)
        torch.testing.assert_close(unit(grads[0]), unit(grads[1]))


def test_nothing_vanishes():
    """Leads of the true class up to 10,000 in float32: every term has a gradient, and it points the right way."""
    y = torch.zeros(4, dtype=torch.long)
    logits = torch.tensor([[lead, 0.0, -1.0] for lead in (10.0, 100.0, 1000.0, 10000.0)])
    for sign in (1, -1):  # the true class leads, or is far behind
        for term in probability_terms(1.0):
            leaf = (sign * logits).requires_grad_()
            (grad,) = torch.autograd.grad(term(leaf, y).sum(), leaf)
            assert grad.isfinite().all()
            strongest = 1 if sign == 1 else 2
            assert (grad[:, strongest] - grad[:, 0] > 0.1).all()


def test_iterates_are_those_of_the_plain_form():
    """Signs see no positive factor: the same steps as with probabilities themselves, where those do not vanish."""
    model = SmallNet().double().eval()
    x, y = examples(model)
    settings = {"eps": 0.1, "steps": 10, "switch": 0.5, "norm": "Linf", "restarts": 1, "targeted": False}
    victim = Victim(model, Execution().for_attacks(x.device))
    index = torch.arange(len(x))
    expected = two_stages(victim, x, y, 0, index, terms=Terms(*naive_terms(1.0)), stop="never", **settings)
    torch.testing.assert_close(ProbabilityMargin(**settings, stop="never")(model, x, y), expected)


def test_a_saturated_model_falls():
    """Logits a hundred times as far apart: the same classifier, which the plain form hardly attacks."""
    model, x, y = digits()
    x, y = x[:150], y[:150]
    saturated = Scaled(model, 100.0)
    with pytest.warns(ZeroGradientWarning):
        plain = PGD(eps=0.1, alpha=0.02, steps=20, objective="probability-margin").run(saturated, x, y)
    ours = ProbabilityMargin(eps=0.1, steps=20).run(saturated, x, y)
    scaled = ProbabilityMargin(eps=0.1, steps=20, logit_scale=0.01).run(saturated, x, y)
    unscaled = ProbabilityMargin(eps=0.1, steps=20).run(model, x, y)
    assert plain.zero_gradient_share > 0.5
    assert ours.zero_gradient_share == 0
    assert ours.success.sum() > plain.success.sum() + 40
    assert abs(int(scaled.success.sum()) - int(unscaled.success.sum())) <= 1


def test_refusals():
    with pytest.raises(ValueError, match=r"`logit_scale` to be a finite number above 0, but got 0"):
        ProbabilityMargin(eps=0.1, logit_scale=0)
    with pytest.raises(ValueError, match=r"`switch` to be a share of the steps, at most 0\.5, but got 1"):
        ProbabilityMargin(eps=0.1, switch=1)
    with pytest.raises(ValueError, match=r"`steps` to be a whole number of at least 1"):
        ProbabilityMargin(eps=0.1, steps=0)
