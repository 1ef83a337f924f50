"""MD takes the authors' steps, written down again naively, and sees what the margin alone does not."""

import math

import pytest
import torch
from attack_zoo import CLASSES, SmallNet, examples
from torch import nn

from pclc.attacks import MD, PGD
from pclc.attacks.balls import random_point


def naive(model, x, y, *, eps, steps, change, targeted=False):
    """The first attempt in Linf, with every objective and step written out."""
    x_adv = random_point(x, eps, "Linf", 0, torch.arange(len(x)), draw=0)
    for i in range(steps):
        leaf = x_adv.clone().requires_grad_()
        z = model(leaf)
        true = z[torch.arange(len(y)), y]
        other = z.masked_fill(torch.nn.functional.one_hot(y, CLASSES).bool(), -math.inf).max(1).values
        if i == 0:
            loss = true
        elif i < change:
            loss = -true
        else:
            loss = other - true
        (grad,) = torch.autograd.grad((-loss if targeted else loss).sum(), leaf)
        done = (i - change - 1) if i > change else (i - 1)
        alpha = 2 * eps * (1 + math.cos(done / (steps - change) * math.pi)) / 2
        x_adv = (x_adv + alpha * grad.sign()).clamp(x - eps, x + eps).clamp(0, 1)
    return x_adv


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize(("steps", "switch"), [(10, 0.4), (9, 0.5), (4, 0.0), (1, 0.4)])
def test_steps_are_the_authors(steps, switch, targeted):
    model = SmallNet().double().eval()
    x, y = examples(model)
    attack = MD(eps=0.05, steps=steps, switch=switch, restarts=1, stop="never", targeted=targeted)
    expected = naive(model, x, y, eps=0.05, steps=steps, change=switch * steps, targeted=targeted)
    torch.testing.assert_close(attack(model, x, y), expected)


class Imbalanced(nn.Module):
    """The margin is positive for v > 0.37 only, and falls towards there from everywhere below v = 0.25.

    One term's slope leads up, the other one's is steeper and leads down; `swap` exchanges them.
    """

    def __init__(self, swap=False):
        super().__init__()
        self.swap = swap

    def forward(self, x):
        v = x[:, 0] - 0.5
        up = 4 * v + 40 * (v - 0.25).clamp(min=0)
        down = v + 9 * v.clamp(max=0.25) + 3
        return torch.stack([down, up] if self.swap else [-up, -down], 1)


@pytest.mark.parametrize("swap", [False, True])
def test_one_term_leads_where_the_margin_does_not(swap):
    """Attempts take the terms in turn: minus the true logit leads out in the first, the other logit in the second."""
    model = Imbalanced(swap)
    x, y = torch.full((3, 2), 0.5), torch.zeros(3, dtype=torch.long)
    margin = PGD(eps=0.4, alpha=0.05, steps=50, random_start=False, objective="margin").run(model, x, y)
    assert not margin.success.any()
    assert (MD(eps=0.4, steps=10, stop="never", restarts=1).run(model, x, y).success != swap).all()
    assert MD(eps=0.4, steps=10, stop="never", restarts=2).run(model, x, y).success.all()


def test_refusals():
    with pytest.raises(ValueError, match=r"`switch` to be a share of the steps, at most 0\.5, but got 0\.6"):
        MD(eps=0.1, switch=0.6)
    with pytest.raises(ValueError, match=r"`switch` to be a finite number of at least 0, but got -0\.1"):
        MD(eps=0.1, switch=-0.1)
    with pytest.raises(ValueError, match=r"`restarts` to be a whole number of at least 1"):
        MD(eps=0.1, restarts=0)
    with pytest.raises(ValueError, match=r"`eps` to be at most 1 in Linf"):
        MD(eps=8)
