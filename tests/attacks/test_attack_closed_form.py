"""On linear models the smallest perturbation is known: attacks succeed exactly beyond it."""

import pytest
import torch
from attack_zoo import distances, problem

from pclc.attacks import BIM, FGSM, MIM, PGD, SPSA, CarliniWagner


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
