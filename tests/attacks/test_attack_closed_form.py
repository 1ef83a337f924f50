"""On linear models the smallest perturbation is known: attacks succeed exactly beyond it."""

import pytest
import torch
from attack_zoo import distances, problem

from pclc.attacks import BIM, FGSM, MIM, PGD, SPSA, CarliniWagner, get_objective
from pclc.attacks.loop import Rows
from pclc.attacks.random import signs
from pclc.attacks.rules import momentum
from pclc.attacks.spsa import estimated_gradient
from pclc.attacks.victim import Victim
from pclc.execution import Execution


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


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_momentum_is_kept_by_its_share(norm):
    rule, memory, g = momentum(0.1, norm, decay=0.5), torch.zeros(3, 5, dtype=torch.float64), 0.0
    for t, grad in enumerate(torch.randn(4, 3, 5, dtype=torch.float64)):
        g = 0.5 * g + grad / grad.abs().mean(1, keepdim=True)
        update, memory = rule(grad, memory, t)
        torch.testing.assert_close(update, 0.1 * (g.sign() if norm == "Linf" else g / g.norm(dim=1, keepdim=True)))


def test_spsa_measures_slopes_from_both_sides():
    """Of a sum of cubes they are known: (3 x^2 + delta^2) v along signs v, which belong to the example."""
    x, place = torch.rand(3, 5, dtype=torch.float64), torch.tensor([4, 0, 9])
    y = torch.zeros_like(place)
    victim = Victim(lambda x: torch.stack([-(x**3).sum(1), 0 * x[:, 0]], 1), Execution().for_attacks(x.device))
    gradient = estimated_gradient(victim, get_objective("margin"), seed=2, delta=0.1, samples=6)
    found = gradient(Rows(x, y, place, x, x.new_empty(3, 0)), 5)[1]
    v = torch.stack([signs((5,), 2, place, step=5, draw=draw, dtype=x.dtype) for draw in range(6)])
    slope = ((3 * x.square() + 0.1**2) * v).sum(2, keepdim=True)
    torch.testing.assert_close(found, (slope * v).mean(0))


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
