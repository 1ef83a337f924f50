"""Every objective against its formula, written again naively, row by row."""

import math

import pytest
import torch
from attack_zoo import SmallNet, examples

from pclc.attacks import APGD, PGD, Square, get_objective, register_objective
from pclc.attacks.objectives import _OBJECTIVES, directed
from pclc.functional import complement_entropy, guided_complement_entropy, pc_loss


def best_other(z, y):
    return max(z[k] for k in range(len(z)) if k != y)


def softmax(z):
    exps = [math.exp(v - max(z)) for v in z]
    return [v / sum(exps) for v in exps]


def naive(name, z, y):
    top = sorted(z, reverse=True)
    match name:
        case "ce":
            return -math.log(softmax(z)[y])
        case "margin":
            return best_other(z, y) - z[y]
        case "dlr":
            return -(z[y] - best_other(z, y)) / (top[0] - top[2])
        case "dlr-targeted":
            return (best_other(z, y) - z[y]) / (top[0] - (top[2] + top[3]) / 2)
        case "probability-margin":
            return best_other(softmax(z), y) - softmax(z)[y]
    row, label = torch.tensor([z], dtype=torch.float64), torch.tensor([y])
    losses = {
        "pc-lc": lambda: pc_loss(row, label),
        "pc": lambda: pc_loss(row, label, logit_weight=0),
        "gce": lambda: guided_complement_entropy(row, label),
        "complement-entropy": lambda: complement_entropy(row, label),
    }
    return losses[name]().item()


NAMES = ["ce", "margin", "dlr", "dlr-targeted", "probability-margin", "pc-lc", "pc", "gce", "complement-entropy"]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scale", ["", "*0.1", "*1e1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values(name, scale, dtype):
    logits, y = (torch.randn(20, 6) * 3).to(dtype), torch.randint(0, 6, (20,))
    factor = float(scale[1:] or 1)
    expected = [naive(name, [factor * v for v in z], c) for z, c in zip(logits.tolist(), y.tolist(), strict=True)]
    got = get_objective(name + scale)(logits, y)
    assert got.dtype == dtype
    torch.testing.assert_close(got.double(), torch.tensor(expected, dtype=torch.float64), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_and_rows(name):
    logits = (torch.randn(6, 5, dtype=torch.float64)).requires_grad_()
    y = torch.randint(0, 5, (6,))
    objective = get_objective(name)
    assert torch.autograd.gradcheck(lambda z: objective(z, y), logits)
    torch.testing.assert_close(objective(logits[2:3], y[2:3]), objective(logits, y)[2:3])


@pytest.mark.parametrize("name", NAMES)
def test_a_constant_added_to_the_logits_changes_nothing(name):
    logits, y = torch.randn(6, 5, dtype=torch.float64), torch.randint(0, 5, (6,))
    torch.testing.assert_close(get_objective(name)(logits - 100, y), get_objective(name)(logits, y))


def test_half_precision_is_computed_in_float32():
    logits, y = torch.randn(6, 5).bfloat16(), torch.randint(0, 5, (6,))
    assert torch.equal(get_objective("dlr")(logits, y), get_objective("dlr")(logits.float(), y))


def test_autocast_does_not_reach_into_objectives(monkeypatch):
    """Products of logits beyond the range of fp16 would be infinite, and no point better than another."""
    near = torch.rand(5, 5)
    monkeypatch.setitem(_OBJECTIVES, "near", lambda logits, y: (logits @ near).gather(1, y[:, None]).squeeze(1))
    logits, y = 1e6 * torch.randn(6, 5), torch.randint(0, 5, (6,))
    expected = get_objective("near")(logits, y)
    with torch.autocast("cpu", dtype=torch.float16):
        assert torch.equal(get_objective("near")(logits, y), expected)


def writes(logits, y):
    """The margin, as many write it."""
    rows = torch.arange(len(y))
    true = logits[rows, y]
    logits[rows, y] = -1e4
    return logits.amax(1) - true


@pytest.mark.parametrize(
    "make",
    [
        lambda objective: PGD(eps=0.1, alpha=0.02, steps=8, objective=objective),
        lambda objective: APGD(eps=0.1, steps=8, objective=objective),
        lambda objective: Square(eps=0.1, queries=50, objective=objective),
    ],
    ids=["pgd", "apgd", "square"],
)
def test_an_objective_may_write_into_its_logits(monkeypatch, make):
    """Those tell who is fooled, and all would seem to be."""
    monkeypatch.setitem(_OBJECTIVES, "writes", writes)
    model = SmallNet().eval()
    x, y = examples(model, 40, dtype=torch.float32)
    expected, found = (make(name).run(model, x, y) for name in ("margin", "writes"))
    assert torch.equal(found.success, expected.success)
    torch.testing.assert_close(found.x_adv, expected.x_adv)


@pytest.mark.parametrize("make", [lambda loss: loss.mean(), lambda loss: loss[:, None]], ids=["mean", "column"])
def test_an_objective_has_one_value_a_row(monkeypatch, make):
    """With the mean over a batch, the loss of whoever forgets the reduction, Square fooled half as many."""
    monkeypatch.setitem(_OBJECTIVES, "mean", lambda logits, y: make(get_objective("ce")(logits, y)))
    with pytest.raises(ValueError, match=r'`objective` "mean" to give one value per row, of shape \(6,\), but got \('):
        get_objective("mean*2")(torch.randn(6, 5), torch.randint(0, 5, (6,)))


def test_targeted_is_the_negative():
    logits, y = torch.randn(6, 5), torch.randint(0, 5, (6,))
    assert torch.equal(directed("margin", True)(logits, y), -directed("margin", False)(logits, y))


@pytest.mark.parametrize(("name", "fewest"), [("dlr", 3), ("dlr-targeted", 4)])
def test_classes_needed(name, fewest):
    objective = get_objective(name)
    objective(torch.randn(2, fewest), torch.tensor([0, 1]))
    with pytest.raises(ValueError, match=rf'at least {fewest} classes for `objective` "{name}", but the model has'):
        objective(torch.randn(2, fewest - 1), torch.tensor([0, 1]))


def test_refusals():
    with pytest.raises(ValueError, match=r"`objective` to be one of ce, .* but got 'margn'\. Did you mean 'margin'\?"):
        get_objective("margn")
    for scale in ("0", "-1", "x", "inf", ""):
        with pytest.raises(ValueError, match=r"the logit scale in `objective` to be a number above 0, but got"):
            get_objective(f"ce*{scale}")
    with pytest.raises(ValueError, match=r'"dlr-targeted" to be used with targeted=True'):
        PGD(eps=0.1, alpha=0.1, steps=1, objective="dlr-targeted")
    with pytest.raises(ValueError, match=r"'ce' is registered already"):
        register_objective("ce")
    with pytest.raises(ValueError, match=r"a name without a `\*`, but got 'a\*b'"):
        register_objective("a*b")
