"""Averaged weights: the formula, what is averaged, and that the model's own weights come back."""

import pytest
import torch
from torch import nn

import pclc
from pclc.training import TrainConfig
from pclc.training.average import Average


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2 * 36, 3))


def test_the_formula() -> None:
    """Decay min(d, (1 + t) / (10 + t)) at step t, from the weights at the beginning."""
    model = network()
    average = Average(model, decay=0.3)
    weight = model[0].weight
    assert isinstance(weight, torch.Tensor)
    expected = weight.detach().double()
    for t in range(1, 8):
        with torch.no_grad():
            weight.add_(torch.randn_like(weight))
        average.update()
        decay = min(0.3, (1 + t) / (10 + t))
        expected = decay * expected + (1 - decay) * weight.detach().double()
    assert min(0.3, 2 / 11) != 0.3, "both branches were seen"
    average.store()
    torch.testing.assert_close(weight.detach().double(), expected, rtol=1e-5, atol=1e-6)


def test_batch_norm_is_averaged_and_its_count_copied() -> None:
    model = network().train()
    average = Average(model, decay=0.9)
    for _ in range(3):
        model(torch.rand(4, 1, 8, 8) + 5)
        average.update()
    norm = model[1]
    assert isinstance(norm, nn.BatchNorm2d)
    own = {name: value.clone() for name, value in model.state_dict().items()}
    with average.in_place():
        assert norm.num_batches_tracked == 3
        assert norm.running_mean is not None
        assert not norm.running_mean.equal(own["1.running_mean"])
    assert all(value.equal(own[name]) for name, value in model.state_dict().items())


def test_a_mask_of_infinity_stays_what_it_is() -> None:
    model = network()
    model.register_buffer("mask", torch.tensor([0.0, -torch.inf]))
    average = Average(model, decay=0.9)
    average.update()
    average.store()
    assert model.mask.tolist() == [0.0, -torch.inf]  # type: ignore[union-attr, operator]


def test_own_weights_come_back_after_an_error() -> None:
    model = network()
    average = Average(model, decay=0.9)
    with torch.no_grad():
        model[0].weight.add_(1)  # type: ignore[union-attr, operator]
    own = model[0].weight.clone()  # type: ignore[union-attr, operator]
    with pytest.raises(RuntimeError), average.in_place():
        raise RuntimeError
    assert model[0].weight.equal(own)  # type: ignore[union-attr, operator]


def test_without_adversarial_training_too() -> None:
    digits = pclc.load_dataset("digits")
    test = pclc.load_dataset("digits", "test")
    models = []
    for ema in (0.0, 0.95):
        torch.manual_seed(0)
        config = TrainConfig(loss="ce", warm_up_epochs=0, epochs=3, batch_size=64, ema=ema)
        execution = pclc.Execution(device="cpu")
        result = pclc.train(pclc.create_model("lenet8"), digits, config, execution=execution, test=test)
        assert result.test_accuracy is not None
        assert result.test_accuracy > 0.85
        models.append(result.model)
    assert not all(a.equal(b) for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True))
