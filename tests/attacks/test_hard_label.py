"""RayS: the authors' queries, written down again for one example at a time; labels are all it sees."""

import math

import pytest
import torch
from attack_zoo import CLASSES, SmallNet, digits, examples, linear
from torch import nn

from pclc.attacks import PGD, HardLabel
from pclc.execution import Execution


class SpentError(Exception):
    """No queries are left."""


def naive(model, x, y, *, eps, queries, targeted=False, stop="never"):
    """(x_adv, queries spent) of one image x without a batch dimension."""
    flat, asked, found = x.flatten(), 0, [math.inf, None]

    def fools(ray, r):
        nonlocal asked
        if asked == queries or (stop == "success" and found[0] <= eps):
            raise SpentError
        asked += 1
        point = (flat + r * ray).clamp(0, 1)
        wrong = (model(point.reshape(1, *x.shape)).argmax().item() == y) == targeted
        if wrong and r < found[0]:
            found[:] = r, point
        return wrong

    def try_ray(ray):
        high, low = min(found[0], 1.0), 0.0
        if not fools(ray, high):
            return
        while True:
            middle = (low + high) / 2
            low, high = (low, middle) if fools(ray, middle) else (middle, high)
            if high - low <= 1e-3 / math.sqrt(len(flat)):
                return

    best = torch.ones_like(flat)
    try:
        for level in range(10**6):
            size = math.ceil(len(flat) / 2**level)
            for first in range(0, len(flat), size):
                ray, before = best.clone(), found[0]
                ray[first : first + size] *= -1
                try_ray(ray)
                best = ray if found[0] < before else best
    except SpentError:
        pass
    return (found[1].reshape(x.shape) if found[0] <= eps else x), asked


@pytest.mark.parametrize("targeted", [False, True])
@pytest.mark.parametrize("stop", ["success", "never"])
@pytest.mark.parametrize("queries", [17, 300])
def test_queries_are_the_authors(queries, stop, targeted):
    model = SmallNet().double().eval()
    x, y = examples(model)
    x, y = x[2:], (y[2:] + 1) % CLASSES if targeted else y[2:]
    result = HardLabel(eps=0.15, queries=queries, stop=stop, targeted=targeted).run(model, x, y)
    spent = 0
    for n in range(len(x)):
        expected, asked = naive(model, x[n], y[n].item(), eps=0.15, queries=queries, targeted=targeted, stop=stop)
        torch.testing.assert_close(result.x_adv[n], expected)
        spent += asked
    assert result.forwards == spent + 2 * len(x)
    assert result.backwards == 0
    assert queries == 17 or result.success.any()


def test_only_labels_are_seen():
    """One-hot logits, a model without gradients: the same examples to the last bit."""
    model = SmallNet().double().eval()
    x, y = examples(model)

    def labels(x):
        return 3.0 * nn.functional.one_hot(model(x).argmax(1), CLASSES).double().detach()

    attack = HardLabel(eps=0.1, queries=150)
    result = attack.run(model, x, y)
    assert 2 < result.success.sum() < len(x)
    assert torch.equal(attack.run(labels, x, y).x_adv, result.x_adv)


def test_only_what_fools_within_eps_is_asked_again():
    model = SmallNet().eval()
    x, y = examples(model, 40, dtype=torch.float32)
    coarse = Execution(device="cpu", precision="bf16")
    attack = HardLabel(eps=0.02, queries=60)
    exact, result = attack.run(model, x, y), attack.run(model, x, y, execution=coarse)
    assert torch.equal(result.success, model(result.x_adv).argmax(1) != y)
    assert result.success.sum() > 5
    assert abs(result.forwards - exact.forwards) < len(x), "not once more for every point that fools further away"


@pytest.mark.parametrize("targeted", [False, True])
def test_points_that_are_nan_in_crafting_only_mislead_nobody(targeted):
    """As when fp16 overflows on images far from natural ones."""
    torch.manual_seed(0)
    net = nn.Linear(16, 2)
    net.bias.data = -net.weight.data.sum(1) / 2
    x = 0.4 + 0.2 * torch.rand(40, 16)
    y = net(x).argmax(1)

    def model(at):
        far = torch.cdist(at, x, p=torch.inf).amin(1) > 0.1
        lost = far & torch.is_autocast_enabled("cpu")
        return torch.where(lost[:, None], torch.nan, net(at).float())

    attack, goal = HardLabel(eps=0.05, queries=200, targeted=targeted), 1 - y if targeted else y
    exact, coarse = (
        attack.run(model, x, goal, execution=Execution(device="cpu", precision=precision)).success.sum()
        for precision in ("fp32", "bf16")
    )
    print(f"fooled: {exact} in float32, {coarse} where points are lost")
    assert exact > 30
    assert coarse >= exact - 1


def test_radius_of_a_linear_model():
    """The smallest Linf radius is |w x + b| / |w|_1; down to single pixels every sign is found."""
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(2, 25, generator=generator, dtype=torch.float64)
    x = 0.5 + 0.1 * torch.randn(10, 1, 5, 5, generator=generator, dtype=torch.float64).clamp(-2, 2)
    model = linear(weight, -weight.sum(1) / 2)
    logits = model(x)
    y = logits.argmax(1)
    nearest = (logits[:, 0] - logits[:, 1]).abs() / (weight[0] - weight[1]).abs().sum()
    result = HardLabel(eps=1.0, queries=400, stop="never").run(model, x, y)
    norms = (result.x_adv - x).flatten(1).abs().amax(1)
    assert result.success.all()
    assert (norms >= nearest * (1 - 1e-9)).all()
    assert (norms <= nearest + 1e-3 / 5 + 1e-9).all()


def test_outcomes_on_digits():
    """With some hundred queries about as strong as white-box PGD-40."""
    model, x, y = digits()
    x, y = x[:100], y[:100]
    white = PGD(eps=0.1, alpha=0.01, steps=40).run(model, x, y).success.double().mean()
    black = HardLabel(eps=0.1, queries=400).run(model, x, y).success.double().mean()
    print(f"fooled: hard labels {black}, PGD {white}")
    assert abs(black - white) <= 0.08


def test_x_comes_back_where_nothing_is_near():
    model = linear(torch.zeros(3, 36), torch.tensor([2.0, 0.0, 0.0]))
    x, y = torch.rand(3, 1, 6, 6), torch.zeros(3, dtype=torch.long)
    assert torch.equal(HardLabel(eps=0.5, queries=50)(model, x, y), x)


def test_one_pixel():
    """A hundred levels of one block each: blocks stay at one pixel."""
    model = linear(torch.tensor([[1.0], [-1.0]]), torch.tensor([-0.5, 0.5]))
    result = HardLabel(eps=0.3, queries=150, stop="never").run(model, torch.tensor([[0.7]]), torch.tensor([0]))
    assert result.success.all()
    assert 0.2 <= 0.7 - result.x_adv.item() <= 0.2 + 2e-3


def test_refusals():
    with pytest.raises(ValueError, match=r"`eps` to be at most 1 in Linf"):
        HardLabel(eps=8)
    with pytest.raises(ValueError, match=r"`queries` to be a whole number of at least 1, but got 0"):
        HardLabel(eps=0.1, queries=0)
