"""What the space and the search for the nearest example change, and what not."""

import pytest
import torch
from attack_zoo import SmallNet, examples

from pclc.attacks import CarliniWagner

SETTINGS = {"steps": 30, "search_steps": 5}
RATES = {"tanh": 0.01, "pixel": 0.001}  # of which some examples fall and some do not


@pytest.mark.parametrize("space", ["tanh", "pixel"])
@pytest.mark.parametrize("confidence", [0.0, 0.5])
def test_the_first_example_that_fools_is_enough_to_know_who_is_fooled(space, confidence):
    model = SmallNet().double().eval()
    x, y = examples(model, 40)
    nearest, first = (
        CarliniWagner(confidence, RATES[space], space=space, nearest=nearest, **SETTINGS).run(model, x, y)
        for nearest in (True, False)
    )
    assert torch.equal(nearest.success, first.success)
    assert 0 < first.success.sum() < len(x)
    assert first.backwards < 0.9 * nearest.backwards
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
