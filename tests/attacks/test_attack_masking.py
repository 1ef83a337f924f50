"""Logits scaled, shifted or at -inf: margins keep their strength, cross-entropy tells that its gradients are gone."""

import warnings

import pytest
import torch
from attack_zoo import Scaled, SmallNet, digits, examples
from torch import nn

from pclc.attacks import APGD, BIM, PGD, SPSA, APGDTargeted, CarliniWagner, ZeroGradientWarning

EPS = 0.1


def bim(objective, **settings):
    return BIM(eps=EPS, alpha=0.02, steps=10, objective=objective, **settings)


def accuracy(attack, model, x, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroGradientWarning)
        return 1 - attack.run(model, x, y).success.float().mean().item()


@pytest.fixture(scope="module")
def trained():
    model, x, y = digits()
    return model, x[:120], y[:120]


@pytest.mark.parametrize("objective", ["margin", "dlr"])
@pytest.mark.parametrize(("scale", "shift"), [(1e4, 0), (1, -100), (1, 100), (1e4, -100)])
def test_margins_keep_their_strength(trained, objective, scale, shift):
    model, x, y = trained
    plain = accuracy(bim(objective), model, x, y)
    assert plain < 0.7
    assert accuracy(bim(objective), Scaled(model, scale, shift), x, y) == pytest.approx(plain, abs=0.02)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("attack", [APGD(0.3, steps=20, objective="dlr"), APGDTargeted(0.3, steps=20)], ids=str)
def test_classes_at_minus_infinity_do_not_blind_dlr(attack, classes):
    """It divides by the distance to the third or fourth class, as in a model of several tasks of which one is asked."""

    class OneTask(nn.Module):
        def forward(self, logits):
            return torch.cat([logits[:, :classes], torch.full_like(logits[:, classes:], -torch.inf)], 1)

    model, x, y = digits()
    x, y = x[y < classes][:30], y[y < classes][:30]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroGradientWarning)  # of targets that are not among the classes
        result = attack.run(nn.Sequential(model, OneTask()), x, y)
    margin = APGD(0.3, steps=20, objective="margin").run(lambda x: model(x)[:, :classes], x, y)
    assert margin.success.sum() > 10
    assert result.success.sum() >= margin.success.sum() - 2


def test_cross_entropy_tells_that_its_gradients_are_gone(trained):
    model, x, y = trained
    plain = bim("ce").run(model, x, y)
    assert plain.zero_gradient_share == 0
    masked = Scaled(model, 1e4)
    with pytest.warns(ZeroGradientWarning, match=r"[0-9.]+% of the gradients of bim\(.*\) were exactly zero") as caught:
        result = bim("ce").run(masked, x, y)
    assert caught[0].filename == __file__
    assert result.zero_gradient_share > 0.9
    assert result.success.float().mean() < plain.success.float().mean() - 0.2
    # and a logit scale gives it its gradients back
    again = bim("ce*0.0001").run(masked, x, y)
    assert again.zero_gradient_share == 0
    assert torch.equal(again.success, plain.success)


def test_a_zero_gradient_does_not_move(trained):
    model, x, y = trained
    keep = model(x).argmax(1) == y
    masked = Scaled(model, 1e6)
    for attack in (bim("ce", stop="never"), BIM(eps=1.0, alpha=0.2, steps=10, norm="L2", stop="never")):
        with pytest.warns(ZeroGradientWarning):
            result = attack.run(masked, x[keep], y[keep])
        assert result.zero_gradient_share == 1
        assert torch.equal(result.x_adv, x[keep])


def test_tiny_gradients_still_move():
    """An L2 step divides by the norm; squares of gradients near 1e-25 are zero in float32."""
    model = SmallNet().eval()
    x, y = examples(model, dtype=torch.float32)
    attack = BIM(eps=0.5, alpha=0.1, steps=5, norm="L2", objective="margin", stop="never")
    expected = attack(model, x, y)
    result = attack.run(Scaled(model, 1e-25), x, y)
    assert result.zero_gradient_share == 0
    torch.testing.assert_close(result.x_adv, expected, rtol=0, atol=1e-3)


def test_spsa_needs_no_gradients(trained):
    model, x, y = (part if part is trained[0] else part[:60] for part in trained)
    attack = SPSA(eps=EPS, lr=0.03, steps=8, samples=32)
    plain = accuracy(attack, model, x, y)
    assert accuracy(attack, Scaled(model, 1e4), x, y) == pytest.approx(plain, abs=0.05)
    assert plain < 0.85


def test_zero_gradients_of_other_attacks(trained):
    model, x, y = (part if part is trained[0] else part[:10] for part in trained)
    with pytest.warns(ZeroGradientWarning):
        assert (
            SPSA(eps=EPS, lr=0.1, steps=1, samples=2, objective="ce").run(Scaled(model, 1e6), x, y).zero_gradient_share
        )
    flat = Scaled(model, 0.0)
    with pytest.warns(ZeroGradientWarning, match="Try BPDA"):  # it has no objective that could be another
        result = CarliniWagner(steps=2, search_steps=1, confidence=1.0, stop="never").run(flat, x, y)
    assert result.zero_gradient_share == 1


def test_restarts_help_and_are_counted(trained):
    model, x, y = trained
    one = PGD(eps=EPS, alpha=0.05, steps=2, stop="never").run(model, x, y)
    three = PGD(eps=EPS, alpha=0.05, steps=2, restarts=3, stop="never").run(model, x, y)
    assert (three.success | ~one.success).all(), "the first attempt is the same, and one that fools is kept"
    assert three.success.sum() > one.success.sum(), "the others begin elsewhere"
    n = len(x)
    assert (one.forwards, one.backwards) == (4 * n, 2 * n)  # two steps, before and after
    assert (three.forwards, three.backwards) == (11 * n, 6 * n)  # and each attempt is judged
