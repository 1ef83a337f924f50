"""FAB: exact projections, the nearest example on linear models, restarts, memory, and parity with the authors' code."""

import copy

import numpy as np
import pytest
import torch
from attack_zoo import digits, distances, problem
from scipy.optimize import linprog, minimize

from pclc.attacks import FAB
from pclc.attacks.fab import _start, towards_boundary
from pclc.attacks.projections import step_to_hyperplane

ORDER = {"Linf": torch.inf, "L2": 2}


def hyperplanes(count=40, size=7, dtype=torch.float64):
    """Points, normals and gaps of both signs; pixels at 0 and 1, entries of zero; in some cases out of reach."""
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(count, size, generator=generator, dtype=torch.float64) * 1.6 - 0.3).clamp(0, 1)
    w = torch.randn(count, size, generator=generator, dtype=torch.float64)
    w[:, 0] *= torch.arange(count) % 3 > 0
    w[:, 1] *= 1e-3
    gap = torch.randn(count, generator=generator, dtype=torch.float64) * w.norm(dim=1) / 2
    return x.to(dtype), w.to(dtype), gap.to(dtype)


def reach(x, w, gap):
    """The most that steps inside the box take off the gap."""
    against = w * gap.sign()[:, None]
    return torch.where(against > 0, against * x, -against * (1 - x)).sum(1)


def smallest_linf(x, w, gap):
    """By linear programming over (delta, t): minimise t with |delta_i| <= t."""
    d = len(x)
    sides = np.block([[np.eye(d), -np.ones((d, 1))], [-np.eye(d), -np.ones((d, 1))]])
    found = linprog(
        np.eye(d + 1)[d],
        A_ub=sides,
        b_ub=np.zeros(2 * d),
        A_eq=np.append(w, 0)[None],
        b_eq=[-gap],
        bounds=[*zip(-x, 1 - x, strict=True), (0, None)],
    )
    assert found.status == 0
    return found.fun


def smallest_l2(x, w, gap):
    found = minimize(
        lambda delta: delta @ delta,
        np.zeros(len(x)),
        jac=lambda delta: 2 * delta,
        bounds=list(zip(-x, 1 - x, strict=True)),
        constraints={"type": "eq", "fun": lambda delta: w @ delta + gap, "jac": lambda delta: w},
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    return np.sqrt(found.fun)


@pytest.mark.parametrize(("norm", "smallest"), [("Linf", smallest_linf), ("L2", smallest_l2)])
def test_steps_are_the_smallest(norm, smallest):
    x, w, gap = hyperplanes()
    delta = step_to_hyperplane(x, w, gap, norm)
    assert ((x + delta >= -1e-12) & (x + delta <= 1 + 1e-12)).all()
    reachable = reach(x, w, gap) > gap.abs()
    assert 5 < reachable.sum() < len(x) - 3
    torch.testing.assert_close((w * delta).sum(1)[reachable], -gap[reachable], rtol=1e-9, atol=1e-12)
    for row in reachable.nonzero().flatten():
        optimum = smallest(*(tensor[row].numpy() for tensor in (x, w, gap)))
        assert delta[row].norm(p=ORDER[norm]).item() == pytest.approx(optimum, rel=1e-5, abs=1e-9)
    # Where the hyperplane does not meet the box: the corner, in every entry that matters.
    towards = torch.where(w * gap[:, None] > 0, -x, 1 - x)
    corner = torch.where(w == 0, 0, towards)
    torch.testing.assert_close(delta[~reachable], corner[~reachable])


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("alpha_max", [0.4, 1.0])
def test_an_iterate_is_the_published_mixture(norm, alpha_max):
    x, w, gap = hyperplanes()
    x_adv = x.roll(1, 0)
    near, far = (
        step_to_hyperplane(at, w, gap + (w * (at - x_adv)).sum(1), norm)
        for at in (x_adv, x)  # of one hyperplane
    )
    share = lengths(near, norm) / (lengths(near, norm) + lengths(far, norm))
    assert 5 < (share > 0.4).sum() < len(x) - 5
    alpha = share.clamp(max=alpha_max)[:, None]
    expected = (1 - alpha) * (x_adv + 1.05 * near) + alpha * (x + 1.05 * far)
    torch.testing.assert_close(towards_boundary(x_adv, x, gap, w, norm, alpha_max, 1.05), expected.clamp(0, 1))


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("scale", [1e-30, 1e20])
def test_steps_do_not_depend_on_the_size_of_the_normal(norm, scale):
    x, w, gap = hyperplanes(dtype=torch.float32)
    delta = step_to_hyperplane(x, w, gap, norm)
    torch.testing.assert_close(step_to_hyperplane(x, w * scale, gap * scale, norm), delta, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_steps_in_many_pieces(norm):
    """Ends and slopes of very different sizes: the root is found, however many pieces it takes."""
    size = 40
    x = (0.5 ** torch.arange(size, dtype=torch.float64))[None]
    w = 3.0 ** torch.arange(size, dtype=torch.float64)[None]
    most = (w * x).sum(1)
    for part in (1e-9, 0.5, 1 - 1e-9):
        delta = step_to_hyperplane(x, w, part * most, norm)
        torch.testing.assert_close((w * delta).sum(1), -part * most, rtol=1e-9, atol=0)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_a_normal_of_zero_and_a_gap_of_zero_move_nothing(norm):
    x, w, gap = hyperplanes()
    assert not step_to_hyperplane(x, 0 * w, gap, norm).any()
    assert not step_to_hyperplane(x, w, 0 * gap, norm).any()


def lengths(delta, norm):
    return delta.flatten(1).norm(p=ORDER[norm], dim=1)


@pytest.mark.parametrize("norm", ["Linf", "L2"])
@pytest.mark.parametrize("stop", ["success", "never"])
def test_success_exactly_beyond_the_distance(norm, stop):
    model, x, y, weight = problem((1, 4, 4), 5, 30)
    distance = distances(model, x, y, weight, norm)
    eps = distance.median().item()
    result = FAB(eps, steps=20, norm=norm, stop=stop).run(model, x, y)
    clear = (distance / eps - 1).abs() > 0.01
    assert clear.sum() > 20
    assert torch.equal(result.success[clear], (distance < eps)[clear])
    assert torch.equal(result.x_adv[~result.success], x[~result.success])
    assert (lengths(result.x_adv - x, norm) <= eps).all()


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_without_eps_it_is_the_nearest(norm):
    model, x, y, weight = problem((1, 4, 4), 5, 30)
    result = FAB(norm=norm, steps=20).run(model, x, y)
    ratio = lengths(result.x_adv - x, norm) / distances(model, x, y, weight, norm)
    assert result.success.all()
    assert ((ratio >= 1 - 1e-9) & (ratio <= 1.01)).all()


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_targets_are_tried_from_the_largest_logit_on(norm):
    """One class of four is out of reach whatever its logit, so that a single target may miss and three do not."""
    model, x, y, _ = problem((1, 4, 4), 5, 30)
    with torch.no_grad():
        second = model(x).topk(2, dim=1).indices[:, 1]
    x_adv = FAB(norm=norm, targets=1, steps=10)(model, x, y)
    assert torch.equal(model(x_adv).argmax(1), second)
    near = [lengths(FAB(norm=norm, targets=targets, steps=10)(model, x, y) - x, norm) for targets in (1, 4)]
    assert (near[1] <= near[0]).all()


def test_never_keeps_the_nearest():
    model, x, y = digits()
    x, y = x[:30], y[:30]
    early, full = (FAB(0.15, steps=15, stop=stop).run(model, x, y) for stop in ("success", "never"))
    assert torch.equal(early.success, full.success)
    nearer = lengths(full.x_adv - x, "Linf") < lengths(early.x_adv - x, "Linf")
    assert nearer.sum() > 10
    assert (nearer | (full.x_adv == early.x_adv).flatten(1).all(1)).all()


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_targeted(norm):
    model, x, y, _ = problem((1, 4, 4), 5, 30)
    goal = (y + 1) % 5
    result = FAB(norm=norm, steps=30, targeted=True).run(model, x, goal)
    assert result.success.all()
    assert (lengths(result.x_adv - x, norm) >= lengths(FAB(norm=norm, steps=30)(model, x, y) - x, norm) - 1e-9).all()


def test_restarts():
    """Further attempts belong to seed and index, and can only come nearer; here some do."""
    model, x, y = digits()
    model, x, y = copy.deepcopy(model).double(), x[:24].double(), y[:24]
    once, twice, again = (FAB(norm="L2", steps=5, targets=2, restarts=restarts) for restarts in (1, 2, 3))
    first, second = (lengths(attack(model, x, y) - x, "L2") for attack in (once, twice))
    results = [again(model, x, y, seed=seed) for seed in (0, 0, 1)]
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])
    near = lengths(results[0] - x, "L2")
    assert ((near <= second) & (second <= first)).all()
    assert (second < first).any()
    assert (near < second).any()
    part = again(model, x[10:], y[10:], seed=0, index=torch.arange(10, 24))
    torch.testing.assert_close(part, results[0][10:])


@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_restarts_begin_at_half_the_radius(norm):
    x, index = torch.full((6, 9), 0.5, dtype=torch.float64), torch.arange(6)
    radius = torch.linspace(0.1, 0.6, 6, dtype=torch.float64)
    start = _start(x, radius, norm, 0, index, index)
    torch.testing.assert_close(lengths(start - x, norm), radius / 2)
    assert len(start.flatten().unique()) > 40


def test_no_two_attempts_begin_alike(monkeypatch):
    model, x, y, _ = problem((1, 4, 4), 5, 3)
    drawn = []

    def start(x, radius, norm, seed, index, draw):
        drawn.extend(zip(index.tolist(), draw.tolist(), strict=True))
        return _start(x, radius, norm, seed, index, draw)

    monkeypatch.setattr("pclc.attacks.fab._start", start)
    FAB(1e-9, steps=1, restarts=3)(model, x, y)
    assert len(set(drawn)) == len(drawn) == 3 * 4 * 2


def test_rows_in_small_parts_change_nothing(monkeypatch):
    model, x, y, _ = problem((1, 4, 4), 5, 30)
    together = FAB(0.1, steps=6, stop="never")(model, x, y)
    monkeypatch.setattr("pclc.attacks.fab._NUMBERS_A_PASS", 16 * 7)
    torch.testing.assert_close(FAB(0.1, steps=6, stop="never")(model, x, y), together)


def test_cost():
    model, x, y, _ = problem((1, 4, 4), 5, 10)
    result = FAB(1e-9, steps=7).run(model, x, y)
    assert not result.success.any()
    assert result.backwards == 10 * 4 * 7
    assert result.forwards == 2 * result.backwards + 3 * 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"eps": -1}, "`eps` to be a finite number of at least 0"),
        ({"eps": 8}, "`eps` to be at most 1 in Linf"),
        ({"norm": "L1"}, '`norm` to be "Linf" or "L2"'),
        ({"steps": 0}, "`steps` to be a whole number"),
        ({"targets": 0}, "`targets` to be a whole number"),
        ({"alpha_max": 1.5}, "`alpha_max` to be a number in"),
        ({"eta": 0.9}, "`eta` to be at least 1, but got 0.9"),
        ({"beta": -0.1}, "`beta` to be a number in"),
        ({"restarts": 0}, "`restarts` to be a whole number"),
    ],
)
def test_refusals(settings, message):
    with pytest.raises(ValueError, match=message):
        FAB(**settings)


@pytest.mark.peers
@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.1), ("L2", 0.5)])
def test_parity_with_the_authors(norm, eps):
    theirs = pytest.importorskip("pyautoattack.fab_pt", reason="needs the peers: make peers")
    model, x, y = digits()
    x_theirs = theirs.FABAttack_PT(model, norm=norm, n_iter=100, eps=eps, targeted=True, device="cpu").perturb(x, y)
    with torch.no_grad():
        fooled = model(x_theirs).argmax(1) != y
    success = FAB(eps, norm=norm).run(model, x, y).success
    print(f"fab {norm}: accuracy {1 - success.double().mean():.4f}, pyautoattack {1 - fooled.double().mean():.4f}")
    assert success.sum() >= fooled.sum() - 1
