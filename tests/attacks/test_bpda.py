"""BPDA: another gradient, the same values, and a model that comes back as it was."""

import pytest
import torch
from attack_zoo import digits
from torch import nn

from pclc.attacks import BPDA, PGD, ZeroGradientWarning, replace_module


class Quantise(nn.Module):
    """Eight grey levels: useful as a defence only against gradients."""

    def forward(self, x):
        return (7 * x).round() / 7


def quantised():
    model, x, y = digits()
    return nn.Sequential(Quantise(), model).eval(), x[:120], y[:120]


def test_a_quantising_model_falls():
    model, x, y = quantised()
    attack = PGD(eps=0.15, alpha=0.02, steps=20, objective="margin")
    with pytest.warns(ZeroGradientWarning):
        blind = attack.run(model, x, y)
    assert blind.zero_gradient_share == 1
    with replace_module(model, "0", BPDA(model[0])):
        seeing = attack.run(model, x, y)
    assert seeing.zero_gradient_share == 0
    assert blind.success.double().mean() < 0.3
    assert seeing.success.double().mean() > 0.6
    # The examples fool the model itself, not only the one with another gradient.
    with torch.no_grad():
        assert torch.equal(model(seeing.x_adv).argmax(1) != y, seeing.success)


def test_values_are_the_modules_to_the_last_bit():
    x = torch.rand(50, 7)
    thirds = BPDA(lambda x: x / 3, backward=lambda x: 1e6 * x)
    assert torch.equal(thirds(x), x / 3)
    assert torch.equal(BPDA(nn.Identity())(x), x)


def test_gradients_are_those_of_the_stand_in():
    x = torch.rand(4, 3, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(4, 3, dtype=torch.float64)
    for backward, slope in ((None, 1.0), (lambda x: x**2, 2 * x.detach()), (nn.Sigmoid(), None)):
        (grad,) = torch.autograd.grad((BPDA(torch.sign, backward)(x) * weights).sum(), x)
        s = x.detach().sigmoid()
        torch.testing.assert_close(grad, weights * (s * (1 - s) if slope is None else slope))


def test_a_change_of_shape_needs_a_stand_in():
    x = torch.rand(2, 4, 4)
    pool = nn.MaxPool2d(2)
    with pytest.raises(
        ValueError, match=r"shape of `module`'s output, \(2, 2, 2\), but got \(2, 4, 4\), that of the input"
    ):
        BPDA(pool)(x)
    with pytest.raises(ValueError, match=r"`backward` to give the shape .*, \(2, 2, 2\), but got \(2, 1, 1\)\."):
        BPDA(pool, nn.AvgPool2d(4))(x)
    assert torch.equal(BPDA(pool, nn.AvgPool2d(2))(x), pool(x))


def test_parts_are_modules_too():
    """Their parameters, buffers and modes are the model's."""
    inner = nn.BatchNorm1d(3)
    wrapped = BPDA(inner)
    assert dict(wrapped.named_parameters()).keys() == {"module.weight", "module.bias"}
    wrapped.eval()
    assert not inner.training


def test_the_model_comes_back_as_it_was():
    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Hardshrink(), nn.Linear(4, 2)))
    inner = model[1][0]
    keys = list(model.state_dict())

    def work():
        with replace_module(model, "1.0", BPDA(inner)) as same:
            assert same is model
            assert isinstance(model[1][0], BPDA)
            raise RuntimeError("in between")

    with pytest.raises(RuntimeError, match="in between"):
        work()
    assert model[1][0] is inner
    assert list(model.state_dict()) == keys


def test_refusals():
    model = nn.Sequential(nn.Flatten(), nn.Sequential(nn.Hardshrink(), nn.Linear(4, 2)))
    with (
        pytest.raises(
            ValueError, match=r"`name` to be a submodule of the model, but got '1\.5'\. Did you mean '1\.\d'\?"
        ),
        replace_module(model, "1.5", nn.Identity()),
    ):
        pass
    with pytest.raises(ValueError, match=r"`module` to be a module or a function, but got a str"):
        BPDA("round")
    with pytest.raises(ValueError, match=r"`backward` to be a module or a function, but got a int"):
        BPDA(torch.round, 1)


def test_a_module_that_writes_into_its_input():
    """The gradient is taken where the module was asked, and what it wrote stays written, as without BPDA."""
    x = torch.linspace(-2, 2, 9, requires_grad=True)
    before = x.detach().clone()
    here = x.clone()
    value = BPDA(nn.ReLU(inplace=True), nn.functional.softplus)(here)
    assert torch.equal(value, before.relu())
    assert torch.equal(here, before.relu())
    torch.testing.assert_close(torch.autograd.grad(value.sum(), x)[0], before.sigmoid())
