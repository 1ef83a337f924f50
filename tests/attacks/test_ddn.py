"""DDN takes the authors' steps, written down again naively, and is as near as Carlini and Wagner's attack."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from attack_zoo import CLASSES, Scaled, SmallNet, digits, distances, examples, linear, problem

from pclc.attacks import DDN, CarliniWagner, ZeroGradientWarning


def naive(model, x, y, *, steps, init_norm=1.0, gamma=0.05, targeted=False):
    """One example after the other, with cross-entropy."""
    found = x.clone()
    for n in range(len(x)):
        clean, label = x[n : n + 1], y[n : n + 1]
        delta, radius, best = torch.zeros_like(clean), init_norm, math.inf
        limit = torch.maximum(clean, 1 - clean).norm()
        for i in range(steps):
            leaf = (clean + delta).requires_grad_()
            logits = model(leaf)
            loss = F.cross_entropy(logits, label) * (-1 if targeted else 1)
            (grad,) = torch.autograd.grad(loss, leaf)
            fooled = (logits.argmax(1) == label).item() == targeted
            if fooled and delta.norm() < best:
                found[n], best = (clean + delta)[0], delta.norm()
            delta = delta + (0.01 + 0.99 * (1 + math.cos(math.pi * i / steps)) / 2) * grad / grad.norm()
            radius = min(radius * (1 - gamma if fooled else 1 + gamma), limit)
            delta = (clean + delta * radius / delta.norm()).clamp(0, 1) - clean
    return found


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("settings", [{}, {"init_norm": 0.2, "gamma": 0.2}, {"init_norm": 20.0, "gamma": 0.3}])
def test_steps_are_the_authors(settings, targeted):
    model = SmallNet().double().eval()
    x, y = examples(model, 6)
    y = (y + 1) % CLASSES if targeted else y
    ours = DDN(steps=15, targeted=targeted, **settings)(model, x, y)
    torch.testing.assert_close(ours, naive(model, x, y, steps=15, targeted=targeted, **settings))


def test_nearest_point_of_a_linear_model():
    model, x, y, weight = problem((1, 6, 6), 2, 20)
    nearest = distances(model, x, y, weight, "L2")
    result = DDN(steps=300).run(model, x, y)
    norms = (result.x_adv - x).flatten(1).norm(dim=1)
    assert result.success.all()
    assert (norms >= nearest * (1 - 1e-9)).all()
    # The radius goes up and down by gamma about the boundary, and ends within a step or two of it.
    assert (norms <= nearest * 1.06).all()


def test_as_near_as_carlini_wagner():
    model, x, y = digits()
    x, y = x[:60], y[:60]
    norms = []
    for attack in (DDN(steps=100), CarliniWagner(steps=60, search_steps=6, initial_const=0.1)):
        result = attack.run(model, x, y)
        norms.append(torch.where(result.success, (result.x_adv - x).flatten(1).norm(dim=1), torch.inf))
    print(f"median norm {norms[0].median()}, of Carlini and Wagner {norms[1].median()}")
    assert norms[0].isfinite().all()
    assert norms[0].median() <= norms[1].median()


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
def test_as_near_as_foolbox():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        foolbox = pytest.importorskip("foolbox", reason="needs the peers: make peers")
    model, x, y = digits()
    theirs = foolbox.attacks.DDNAttack(steps=100)
    x_theirs = theirs(foolbox.PyTorchModel(model, bounds=(0, 1)), x, y, epsilons=None)[1]
    result = DDN(steps=100).run(model, x, y)
    ours, others = ((adversarial - x).flatten(1).norm(dim=1) for adversarial in (result.x_adv, x_theirs))
    with torch.no_grad():
        missed = model(x_theirs).argmax(1) == y
    print(f"median {ours.median()}, foolbox {others.median()}; not found {(~result.success).sum()}, {missed.sum()}")
    assert (~result.success).sum() <= missed.sum()
    assert ours.median() <= others.median() * (1 + 1e-4)


def test_a_saturated_model_is_hardly_further():
    """Logits a thousand times as far apart: the same boundary, and no gradient of cross-entropy to find it with."""
    model, x, y = digits()
    x, y = x[:30], y[:30]
    plain, saturated = (DDN(steps=50).run(net, x, y) for net in (model, Scaled(model, 1e3)))
    norms = [(result.x_adv - x).flatten(1).norm(dim=1).median() for result in (plain, saturated)]
    assert saturated.success.all()
    assert saturated.zero_gradient_share == 0
    assert norms[1] <= norms[0] * 1.15


def test_without_any_gradient_it_tries_a_random_direction():
    class Steps(torch.nn.Module):
        def forward(self, x):
            inside = ((x - 0.5).flatten(1).norm(dim=1) < 0.3).to(x) + 0 * x.flatten(1).sum(1)
            return torch.stack([inside, 0.5 - 0 * inside], 1)

    x, y = torch.full((4, 1, 3, 3), 0.5), torch.zeros(4, dtype=torch.long)
    with pytest.warns(ZeroGradientWarning):
        result = DDN(steps=60).run(Steps(), x, y)
    assert result.success.all()
    norms = (result.x_adv - x).flatten(1).norm(dim=1)
    assert ((norms >= 0.3) & (norms < 0.33)).all()
    assert len(result.x_adv.unique(dim=0)) == 4, "a direction for each example"


def test_levels():
    model, x, y = digits()
    x, y = (x[:20] * 255).round() / 255, y[:20]
    result = DDN(steps=60, levels=256).run(model, x, y)
    assert result.success.all()
    assert ((result.x_adv * 255 - (result.x_adv * 255).round()).abs() < 1e-4).all()
    assert not torch.equal(result.x_adv, x)


def test_x_comes_back_where_nothing_fools():
    model = linear(torch.zeros(3, 36), torch.tensor([2.0, 0.0, 0.0]))
    x, y = torch.rand(3, 1, 6, 6), torch.zeros(3, dtype=torch.long)
    with pytest.warns(ZeroGradientWarning):
        assert torch.equal(DDN(steps=5)(model, x, y), x)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"steps": 0}, r"`steps` to be a whole number of at least 1, but got 0"),
        ({"init_norm": 0}, r"`init_norm` to be a finite number above 0, but got 0"),
        ({"gamma": 0}, r"`gamma` to be a finite number above 0, but got 0"),
        ({"gamma": 1}, r"`gamma` to be below 1, but got 1"),
        ({"levels": 1}, r"`levels` to be at least 2, but got 1"),
        ({"levels": 2.5}, r"`levels` to be a whole number of at least 1, but got 2\.5"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(ValueError, match=message):
        DDN(**settings)
