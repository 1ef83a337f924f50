"""APGD against the published algorithm, written again for one example, and against closed forms."""

import pytest
import torch
from attack_zoo import SmallNet, examples, linear

from pclc.attacks import APGD, APGDTargeted, get_objective
from pclc.attacks.apgd import checkpoints, edge_point
from pclc.attacks.apgd_targeted import likely_classes
from pclc.attacks.objectives import dlr_towards


def test_checkpoints_are_the_published_ones():
    shares, window = [0.0, 0.22], 0.22
    while shares[-1] < 1:
        window = max(window - 0.03, 0.06)
        shares.append(shares[-1] + window)
    assert list(checkpoints(100)) == [round(100 * share) for share in shares if 0 < share <= 1]
    assert list(checkpoints(1)) == [1]
    assert checkpoints(5) == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1}


def plain_apgd(goal, x, start, eps, steps, norm, rho):
    """Algorithm 1 of the paper for one example; returns the points, in their order, and their values."""

    def into_ball(point):
        if norm == "Linf":
            return torch.minimum(torch.maximum(point, x - eps), x + eps).clamp(0, 1)
        delta = point - x
        return (x + delta * min(1.0, eps / delta.norm().item())).clamp(0, 1)

    def look(point):
        leaf = point.clone().requires_grad_()
        value = goal(leaf)
        (grad,) = torch.autograd.grad(value, leaf)
        return value.item(), (grad.sign() if norm == "Linf" else grad / grad.norm())

    W = [0, max(int(0.22 * steps), 1)]
    while W[-1] < steps:
        W.append(W[-1] + max(W[-1] - W[-2] - max(int(0.03 * steps), 1), max(int(0.06 * steps), 1)))
    step, before, point = 2 * eps, start, start
    value, direction = look(point)
    points, values = [point], [value]
    best, at_check, halved = (value, point, direction), None, True
    for t in range(1, steps + 1):
        ahead = into_ball(point + step * direction)
        share = 1.0 if t == 1 else 0.75
        new = into_ball(point + share * (ahead - point) + (1 - share) * (point - before))
        before, point = point, new
        value, direction = look(point)
        points.append(point)
        values.append(value)
        if value > best[0]:
            best = value, point, direction
        if t in W:
            since = W[W.index(t) - 1]
            rises = sum(values[i + 1] > values[i] for i in range(since, t))
            now = rises <= rho * (t - since) or (not halved and best[0] == at_check)
            if now:
                step, point, direction = step / 2, best[1], best[2]
            at_check, halved = best[0], now
    return points, values


@pytest.mark.parametrize("targets", [None, 2])
@pytest.mark.parametrize(("norm", "eps"), [("Linf", 0.03), ("L2", 0.15)])
def test_the_points_are_those_of_the_published_algorithm(norm, eps, targets):
    model = SmallNet().double().eval()
    x, y = examples(model, 12)
    x, y = x[2:], y[2:]
    index, settings = torch.arange(len(x)), {"steps": 20, "norm": norm, "rho": 0.6}
    if targets is None:
        attack = APGD(eps, restarts=2, objective="dlr", stop="never", **settings)
    else:
        attack = APGDTargeted(eps, restarts=2, targets=targets, stop="never", **settings)
    early = type(attack)(**{**vars(attack), "stop": "success"})
    full, first = attack.run(model, x, y, seed=4), early.run(model, x, y, seed=4)
    classes = model(x).argsort(1, descending=True)
    fooled = 0
    for i in range(len(x)):
        found = []
        for number in range(2 * (targets or 1)):
            start = edge_point(x[i : i + 1], eps, norm, 4, index[i : i + 1], number)

            def goal(point, i=i, number=number):
                if targets is None:
                    return get_objective("dlr")(model(point), y[i : i + 1]).squeeze()
                return dlr_towards(model(point), y[i : i + 1], classes[i : i + 1, 1 + number // 2]).squeeze()

            points, values = plain_apgd(goal, x[i : i + 1], start, eps, **settings)
            wrong = [bool(model(point).argmax() != y[i]) for point in points]
            found += [(w, value, point) for w, value, point in zip(wrong, values, points, strict=True)]
        expected = max(found, key=lambda item: item[:2])[2]
        torch.testing.assert_close(full.x_adv[i : i + 1], expected)
        if any(item[0] for item in found):
            fooled += 1
            expected = next(item[2] for item in found if item[0])
        torch.testing.assert_close(first.x_adv[i : i + 1], expected)
    assert 1 < fooled < len(x)


@pytest.mark.parametrize("make", [APGD, APGDTargeted])
@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_linear_models_fall_just_beyond_the_closed_form(make, norm):
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 12, generator=generator, dtype=torch.float64)
    weight = torch.cat([weight, torch.zeros(2, 12, dtype=torch.float64)])
    x = 0.5 + 0.1 * (torch.rand(1, 12, generator=generator, dtype=torch.float64) - 0.5)
    model = linear(weight, torch.tensor([0.0, 0.0, -50.0, -60.0], dtype=torch.float64))
    logits = model(x)[0]
    y = logits[:2].argmax()
    way = weight[y] - weight[1 - y]
    distance = ((logits[y] - logits[1 - y]) / (way.abs().sum() if norm == "Linf" else way.norm())).item()
    assert 0 < distance < 0.4
    assert make(distance * 1.01, steps=20, norm=norm).run(model, x, y[None]).success
    assert not make(distance * 0.99, steps=20, norm=norm).run(model, x, y[None]).success


def test_the_likely_classes_leave_the_true_one_out():
    logits = torch.tensor([[5.0, 1.0, 4.0, 3.0], [1.0, 2.0, 4.0, 3.0]])
    assert likely_classes(logits, torch.tensor([0, 1]), 9).tolist() == [[2, 3, 1], [2, 3, 0]]
    assert likely_classes(logits, torch.tensor([0, 1]), 2).tolist() == [[2, 3], [2, 3]]


@pytest.mark.parametrize(
    ("attack", "attempts"),
    [(APGD(1e-9, steps=4, restarts=3), 3), (APGDTargeted(1e-9, steps=4), 3), (APGDTargeted(1e-9, 4, 2, restarts=2), 4)],
)
def test_passes(attack, attempts):
    model = SmallNet().double().eval()
    x, y = examples(model)
    x, y = x[2:], y[2:]
    result = attack.run(model, x, y)
    assert not result.success.any()
    looks = 1 if isinstance(attack, APGDTargeted) else 0
    assert result.backwards == attempts * 4 * len(x)
    assert result.forwards == (attempts * 5 + looks + 2) * len(x)


def test_starts_lie_at_the_edge():
    x = torch.full((1, 3, 4), 0.5)
    for norm, order in (("Linf", torch.inf), ("L2", 2)):
        assert (edge_point(x, 0.1, norm, 0, torch.tensor([0]), 0) - x).norm(order).item() == pytest.approx(0.1)


@pytest.mark.filterwarnings("ignore::pclc.attacks.ZeroGradientWarning")
@pytest.mark.parametrize("make", [APGD, APGDTargeted])
@pytest.mark.parametrize("norm", ["Linf", "L2"])
def test_a_point_without_numbers_is_not_kept_before_those_that_fool(make, norm):
    """As where fp16 overflows: what is no number is no class, and looks like success to who does not ask again."""
    model = SmallNet().double().eval()
    x, y = examples(model, 40)
    passes = []

    def overflows(x):
        first = x.requires_grad and not passes  # that with a gradient, at the start
        passes.extend([x] * first)
        return model(x) * (torch.nan if first else 1)

    attack = make(0.1 if norm == "Linf" else 0.5, steps=10, norm=norm, stop="never")
    usual = attack.run(model, x, y).success
    assert 10 < usual.sum() < 40
    assert (attack.run(overflows, x, y).success != usual).sum() <= 2


def test_a_class_can_be_reached():
    model = SmallNet().double().eval()
    x, y = examples(model, 40)
    goal = (y + 1) % 4
    success = APGD(0.3, steps=20, objective="dlr-targeted", targeted=True).run(model, x, goal).success
    assert success.sum() > 10


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: APGD(0.1, rho=75), r"`rho` to be a number in \[0, 1\], but got 75"),
        (lambda: APGD(0.1, steps=0), "`steps` to be a whole number of at least 1"),
        (lambda: APGD(0.1, objective="dlr-targeted"), "used with targeted=True"),
        (lambda: APGD(0.1, norm="L1"), '`norm` to be "Linf" or "L2", but got'),
        (lambda: APGDTargeted(0.1, targets=0), "`targets` to be a whole number of at least 1"),
        (lambda: APGDTargeted(0.1, targeted=True), "`targeted` to be False, because APGDTargeted chooses its own"),
    ],
)
def test_refusals(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_targeted_dlr_needs_four_classes():
    model = linear(torch.eye(3), torch.zeros(3))
    with pytest.raises(ValueError, match=r'at least 4 classes for `objective` "dlr-targeted", but the model has 3'):
        APGDTargeted(0.1)(model, torch.tensor([[0.9, 0.1, 0.1]]), torch.tensor([0]))
