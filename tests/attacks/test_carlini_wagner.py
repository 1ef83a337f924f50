"""What the space, the search for the nearest example and leaving early change, and what not."""

import dataclasses

import pytest
import torch
from attack_zoo import SmallNet, examples

from pclc.attacks import CarliniWagner

SETTINGS = {"steps": 30, "search_steps": 5}
RATES = {"tanh": 0.01, "pixel": 0.001}  # of which some examples fall and some do not


@pytest.mark.parametrize("space", ["tanh", "pixel"])
@pytest.mark.parametrize("confidence", [0.0, 0.5])
@pytest.mark.parametrize("abort_early", [False, True])
def test_the_first_example_that_fools_is_enough_to_know_who_is_fooled(space, confidence, abort_early):
    model = SmallNet().double().eval()
    x, y = examples(model, 40)
    nearest, first = (
        CarliniWagner(confidence, RATES[space], space=space, nearest=nearest, abort_early=abort_early, **SETTINGS).run(
            model, x, y
        )
        for nearest in (True, False)
    )
    assert torch.equal(nearest.success, first.success)
    assert 0 < first.success.sum() < len(x)
    assert first.backwards < (0.95 if abort_early else 0.9) * nearest.backwards
    moved = first.success
    lengths = [(found.x_adv - x)[moved].flatten(1).norm(dim=1) for found in (nearest, first)]
    assert lengths[0].mean() < lengths[1].mean()
    assert torch.equal(first.x_adv[~moved], x[~moved])


def test_where_all_fall_the_largest_constant_is_enough():
    model = SmallNet().double().eval()
    x, y = examples(model, 10)
    found = CarliniWagner(lr=0.02, steps=60, search_steps=9, space="pixel", nearest=False).run(model, x, y)
    assert found.success.all()
    assert found.backwards < 60 * len(x), "not even one descent each, of nine"


def test_small_steps_change_black_pixels_in_the_space_of_pixels_only():
    model = torch.nn.Linear(2, 2, bias=False)
    model.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    x, y = torch.tensor([[0.02, 0.0]]), torch.tensor([0])
    settings = {"lr": 0.001, "steps": 100, "initial_const": 1.0}
    assert CarliniWagner(space="pixel", **settings).run(model, x, y).success.all()
    result = CarliniWagner(space="tanh", **settings).run(model, torch.tensor([[1.0, 0.98]]), y)
    assert not result.success.any()
    assert CarliniWagner(space="pixel", **settings).run(model, torch.tensor([[1.0, 0.98]]), y).success.all()


@pytest.mark.filterwarnings("ignore::pclc.attacks.ZeroGradientWarning")
@pytest.mark.parametrize("nearest", [True, False])
@pytest.mark.parametrize(("steps", "looked_at"), [(40, 4), (25, 2), (3, 1), (1, 0)])
def test_a_loss_that_stands_still_ends_the_descent_at_the_second_look(nearest, steps, looked_at):
    model = torch.nn.Linear(2, 2)
    model.weight.data.zero_()
    model.bias.data = torch.tensor([2.0, 0.0])
    x, y = torch.full((4, 2), 0.5), torch.tensor([0, 0, 0, 1])  # the last one fools, and its loss is zero
    found = CarliniWagner(steps=steps, search_steps=3, nearest=nearest, abort_early=True, stop="never").run(model, x, y)
    assert found.success.tolist() == [False, False, False, True]
    assert torch.equal(found.x_adv, x)
    assert found.backwards == 3 * 3 * (looked_at + 1) + (3 * (looked_at + 1) if nearest else 1)


@pytest.mark.filterwarnings("ignore::pclc.attacks.ZeroGradientWarning")
def test_an_example_whose_loss_falls_stays_whatever_the_others_do():
    model = torch.nn.Sequential(torch.nn.Threshold(0.5, 0.5), torch.nn.Linear(2, 2))  # flat below 0.5
    model[1].weight.data, model[1].bias.data = torch.tensor([[0.0, 1.0], [1.0, 0.0]]), torch.tensor([0.1, 0.0])
    x, y = torch.tensor([[0.6, 0.8], [0.1, 0.2], [0.6, 0.79]]), torch.tensor([0, 0, 0])
    attack = CarliniWagner(lr=0.0032, steps=50, search_steps=2, initial_const=10.0, space="pixel", abort_early=True)
    mixed, alone = attack.run(model, x, y), attack.run(model, x[[0, 2]], y[[0, 2]])
    whole = dataclasses.replace(attack, abort_early=False).run(model, x[[0, 2]], y[[0, 2]])
    assert mixed.success.tolist() == [True, False, True]
    assert torch.equal(mixed.x_adv[[0, 2]], alone.x_adv)
    assert torch.equal(whole.x_adv, alone.x_adv)
    assert whole.backwards == alone.backwards == mixed.backwards - 2 * 6


@pytest.mark.parametrize("space", ["tanh", "pixel"])
def test_who_left_early_and_fools_has_fooled_with_this_constant(space):
    model = SmallNet().double().eval()
    x, y = examples(model, 40)
    attack = CarliniWagner(lr=0.05, steps=50, search_steps=5, initial_const=1.0, space=space)
    whole, early = (dataclasses.replace(attack, abort_early=early).run(model, x, y) for early in (False, True))
    assert early.success.all()
    assert early.backwards < 0.6 * whole.backwards
    lengths = [(found.x_adv - x).flatten(1).norm(dim=1).mean() for found in (whole, early)]
    assert lengths[1] < 1.15 * lengths[0], "a constant that fools, taken for too small, is made larger"


class Dip(torch.nn.Module):
    """The margin of class 1 rises with the pixel, sinks between 0.3 and 0.37, and rises again."""

    def forward(self, x):
        pixel = x[:, 0]
        margin = pixel - 0.45 - 1.1 * (pixel - 0.3).relu() + 2.1 * (pixel - 0.37).relu()
        return torch.stack([torch.zeros_like(margin), margin], 1)


def test_who_left_early_does_not_see_what_comes_later():
    x, y = torch.tensor([[0.08], [0.1], [0.11]]), torch.tensor([0, 0, 0])
    attack = CarliniWagner(steps=100, search_steps=1, initial_const=100.0, space="pixel", nearest=False)
    assert attack.run(Dip(), x, y).success.all()
    early = dataclasses.replace(attack, abort_early=True).run(Dip(), x, y)
    assert early.success.tolist() == [True, False, False], "of the last two a look falls into the dip"
