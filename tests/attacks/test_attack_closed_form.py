"""On linear models the smallest perturbation is known: attacks succeed exactly beyond it."""

import pytest
import torch
from attack_zoo import linear

from pclc.attacks import BIM, FGSM, MIM, PGD, SPSA, CarliniWagner

DUAL = {"Linf": 1, "L2": 2}


def problem(shape, classes, count, shift=0.0):
    """A linear model and images so far inside the box that it does not bind; labels are the predictions.

    The weights of the classes are orthonormal, so that the class of the next largest logit is the nearest one.
    """
    generator = torch.Generator().manual_seed(count)
    size = torch.Size(shape).numel()
    weight = torch.linalg.qr(torch.randn(size, classes, generator=generator, dtype=torch.float64)).Q.T
    x = 0.5 + 0.4 * (torch.rand(count, *shape, generator=generator, dtype=torch.float64) - 0.5)
    model = linear(weight, shift - weight.sum(1) / 2)
    return model, x, model(x).argmax(1), weight


def distances(model, x, y, weight, norm):
    """min over k of (z_y - z_k) / |w_y - w_k| in the dual norm."""
    logits = model(x).detach()
    gap = logits.gather(1, y[:, None]) - logits
    size = (weight[y][:, None] - weight[None]).norm(p=DUAL[norm], dim=2)
    return torch.where(size > 0, gap / size, torch.inf).amin(1)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("shape", [(7,), (1, 4, 4), (3, 2, 5)])
@pytest.mark.parametrize("kind", ["fgsm", "bim", "pgd", "pgd-margin", "pgd-restarts", "mim", "targeted"])
@pytest.mark.parametrize("stop", ["success", "never"])
def test_success_exactly_beyond_the_distance(norm, shape, kind, stop):
    model, x, y, weight = problem(shape, 2, 60)
    distance = distances(model, x, y, weight, norm)
    eps = distance.median().item()
    clear = (distance / eps - 1).abs() > 0.01
    settings = {"eps": eps, "norm": norm, "stop": stop}
    steps = {"alpha": eps / 4, "steps": 25}
    attack, goal = {
        "fgsm": lambda: (FGSM(**settings), y),
        "bim": lambda: (BIM(**settings, **steps), y),
        "pgd": lambda: (PGD(**settings, **steps), y),
        "pgd-margin": lambda: (PGD(**settings, **steps, objective="margin"), y),
        "pgd-restarts": lambda: (PGD(**settings, **steps, restarts=2), y),
        "mim": lambda: (MIM(**settings, **steps), y),
        "targeted": lambda: (PGD(**settings, **steps, targeted=True), 1 - y),
    }[kind]()
    success = attack.run(model, x, goal).success
    assert clear.sum() > 50
    assert torch.equal(success[clear], (distance < eps)[clear])


def test_spsa_succeeds_beyond_the_distance():
    model, x, y, weight = problem((1, 4, 4), 2, 30)
    distance = distances(model, x, y, weight, "Linf")
    eps = distance.median().item()
    success = SPSA(eps=eps, lr=eps / 3, steps=20, samples=32).run(model, x, y).success
    clear = (distance / eps - 1).abs() > 0.03
    assert torch.equal(success[clear], (distance < eps)[clear])


@pytest.mark.parametrize("shape", [(7,), (1, 4, 4), (3, 2, 5)])
@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("shift", [0.0, -100.0])
@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("space", ["tanh", "pixel"])
def test_carlini_wagner_is_near_the_optimum(shape, count, shift, targeted, space):
    model, x, y, weight = problem(shape, 5, count, shift)
    goal = (y + 1) % 5 if targeted else y
    result = CarliniWagner(steps=100, targeted=targeted, space=space).run(model, x, goal)
    assert result.success.all()
    norm = (result.x_adv - x).flatten(1).norm(dim=1)
    if targeted:  # the nearest point of a polyhedron has no formula; it is no nearer than any of its faces
        optimum = (model(x).amax(1) - model(x).gather(1, goal[:, None]).squeeze(1)) / (weight[y] - weight[goal]).norm(
            dim=1
        )
        assert (norm >= optimum * (1 - 1e-6)).all()
    else:
        optimum = distances(model, x, y, weight, "L2")
        assert (norm >= optimum * (1 - 1e-6)).all()
        assert (norm <= 1.25 * optimum).all()


def test_carlini_wagner_keeps_the_confidence():
    model, x, y, weight = problem((1, 4, 4), 2, 8)
    result = CarliniWagner(confidence=0.5, steps=100).run(model, x, y)
    logits = model(result.x_adv)
    lead = logits.gather(1, 1 - y[:, None]) - logits.gather(1, y[:, None])
    assert (lead >= 0.5 - 1e-9).all()
    clean = model(x)
    gap = (clean.gather(1, y[:, None]) - clean.gather(1, 1 - y[:, None])).squeeze(1)
    optimum = (gap + 0.5) / (weight[0] - weight[1]).norm()
    assert ((result.x_adv - x).flatten(1).norm(dim=1) <= 1.25 * optimum).all()
