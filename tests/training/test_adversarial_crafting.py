"""Crafting inside a training step: ball and box, the model untouched, random numbers that belong to the example."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import pclc
from pclc.attacks import PGD, UnreachableWarning
from pclc.attacks.frozen import frozen
from pclc.data.augment import AUGMENTATIONS
from pclc.data.feed import Feed
from pclc.execution import Execution, made_ready
from pclc.training import ADVERSARIAL_PRESETS, AdversarialConfig
from pclc.training.average import Average
from pclc.training.batch_loss import Batch, adversarial_loss
from pclc.training.crafting import craft, radii

EPOCH = torch.tensor([3])
CPU = Execution(device="cpu")


def network() -> nn.Module:
    """BatchNorm and dropout, both of which would show if crafting ran in training mode."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5), nn.Flatten(), nn.Linear(4 * 36, 10)
    )
    return model.train()


@pytest.fixture
def examples() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(12, 1, 8, 8, generator=generator), torch.arange(12) % 10, torch.arange(100, 112)


def crafted(model: nn.Module, examples: tuple[Tensor, ...], config: AdversarialConfig, epoch: Tensor = EPOCH) -> Tensor:
    with frozen(model):
        return craft(model, *examples, epoch, config.resolved(), seed=7)


CONFIGS = {
    **ADVERSARIAL_PRESETS,
    "L2": AdversarialConfig("madry", eps=(0.5, 1.0), steps=3, norm="L2"),
    "ramp": AdversarialConfig("madry", eps=0.2, steps=3, ramp_epochs=7),
    "margin": AdversarialConfig("trades", eps=0.1, steps=3, objective="margin*2"),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_inside_ball_and_box(config: AdversarialConfig, examples: tuple[Tensor, Tensor, Tensor]) -> None:
    x, _, index = examples
    x_adv = crafted(network(), examples, config)
    eps = torch.as_tensor(radii(config, 7, index, EPOCH, x.dim())).flatten()
    size = torch.linalg.vector_norm((x_adv - x).flatten(1), ord=2 if config.norm == "L2" else torch.inf, dim=1)
    assert (size <= eps + 1e-6).all()
    assert (size > 0.2 * eps).all(), "it moves"
    assert x_adv.min() >= 0
    assert x_adv.max() <= 1
    assert not x_adv.requires_grad


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_the_loss_rises(config: AdversarialConfig, examples: tuple[Tensor, Tensor, Tensor]) -> None:
    model = network()
    x, y, _ = examples
    x_adv = crafted(model, examples, config)
    model.eval()
    loss = nn.CrossEntropyLoss()
    assert loss(model(x_adv), y) > loss(model(x), y)


def test_one_step_is_fgsm_in_closed_form(examples: tuple[Tensor, Tensor, Tensor]) -> None:
    """On a linear model with two classes the worst point of the ball is x - eps sign(w_y - w_other), in the box."""
    x, y, index = examples
    y = y % 2
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    weight = model[1].weight.detach()
    towards = (weight[1 - y] - weight[y]).view_as(x)
    eps = radii(ADVERSARIAL_PRESETS["paper-grey"], 7, index, EPOCH, 4)
    x_adv = crafted(model, (x, y, index), ADVERSARIAL_PRESETS["paper-grey"])
    torch.testing.assert_close(x_adv, (x + eps * towards.sign()).clamp(0, 1))


def test_a_smaller_eps_takes_steps_that_are_smaller_in_proportion(examples: tuple[Tensor, Tensor, Tensor]) -> None:
    x, (_, y, index) = torch.full((12, 1, 8, 8), 0.5), examples
    with pytest.warns(UnreachableWarning):
        config = AdversarialConfig("mix", eps=(0.1, 0.4), steps=1, alpha=0.1, random_start=False)
    moved = (crafted(network(), (x, y, index), config) - x).abs().amax((1, 2, 3))
    torch.testing.assert_close(moved, torch.as_tensor(radii(config, 7, index, EPOCH, 4)).flatten() / 4)


@pytest.mark.parametrize("objective", ["ce", "margin", "pc-lc", "gce", "ce*0.1"])
def test_it_is_pgd_with_any_objective(objective: str, examples: tuple[Tensor, Tensor, Tensor]) -> None:
    model = network()
    config = AdversarialConfig("madry", eps=0.1, alpha=0.04, steps=5, random_start=False, objective=objective)
    attack = PGD(eps=0.1, alpha=0.04, steps=5, random_start=False, objective=objective, stop="never")
    assert crafted(model, examples, config).equal(attack(model, *examples[:2]))


def test_many_steps_reach_the_same_corner(examples: tuple[Tensor, Tensor, Tensor]) -> None:
    x, y, index = examples
    y = y % 2
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    weight = model[1].weight.detach()
    x_adv = crafted(model, (x, y, index), AdversarialConfig("madry", eps=0.1, steps=9))
    torch.testing.assert_close(x_adv, (x + 0.1 * (weight[1 - y] - weight[y]).view_as(x).sign()).clamp(0, 1))


def test_fast_is_wong_et_al(examples: tuple[Tensor, Tensor, Tensor]) -> None:
    """A start s uniform in [-eps, eps], then 1.25 eps along the sign, clamped: at the edge where s >= -eps / 4."""
    x = torch.full((12, 1, 8, 8), 0.5)
    _, y, index = examples
    y = y % 2
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 2))
    weight = model[1].weight.detach()
    sign = (weight[1 - y] - weight[y]).view_as(x).sign()
    move = (crafted(model, (x, y, index), AdversarialConfig("fast", eps=0.1)) - x) * sign
    assert move.max() <= 0.1 + 1e-6
    assert move.min() >= 0.025 - 1e-6
    at_the_edge = (move > 0.1 - 1e-6).double().mean()
    assert at_the_edge == pytest.approx(5 / 8, abs=0.06)


@pytest.mark.parametrize("method", ["mix", "madry", "trades", "mart", "fast"])
def test_crafting_leaves_the_model_alone(method: str, examples: tuple[Tensor, Tensor, Tensor]) -> None:
    model = network()
    x, y, _ = examples
    nn.CrossEntropyLoss()(model(x), y).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    generator = torch.get_rng_state()
    first, again = (crafted(model, examples, AdversarialConfig(method, eps=0.1)) for _ in range(2))  # type: ignore[arg-type]
    assert first.equal(again), "no dropout"
    assert torch.get_rng_state().equal(generator), "no number from the global generator"
    assert all(value.equal(state[name]) for name, value in model.state_dict().items()), "BatchNorm's buffers too"
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is not None
        assert parameter.grad.equal(gradient)
        assert parameter.requires_grad
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("method", ["mix", "madry", "trades", "mart", "fast"])
def test_of_a_step_only_the_training_pass_moves_batch_norm(
    method: str, examples: tuple[Tensor, Tensor, Tensor]
) -> None:
    config = AdversarialConfig(method, eps=0.1).resolved()  # type: ignore[arg-type]
    model, expected = network(), network()
    loss = adversarial_loss(model, lambda: model, model, config, 7, CPU)
    torch.manual_seed(1)
    value, logits = loss(nn.CrossEntropyLoss(), Batch(*examples, EPOCH))
    assert all(parameter.grad is None for parameter in model.parameters())
    x_adv = crafted(expected, examples, config)
    torch.manual_seed(1)
    passed = expected(torch.cat([examples[0], x_adv]) if config.clean else x_adv)
    assert all(value.equal(expected.state_dict()[name]) for name, value in model.state_dict().items())
    assert logits.equal(passed[-12:]), "in training mode, with dropout"
    value.backward()  # type: ignore[no-untyped-call]
    assert all(parameter.grad is not None and parameter.grad.any() for parameter in model.parameters())


def test_what_is_attacked_is_asked_for_in_every_step(examples: tuple[Tensor, Tensor, Tensor]) -> None:
    """It may be made of the weights as they are, and they change from step to step."""
    config = AdversarialConfig("madry", eps=0.1).resolved()
    model, expected = network(), network()
    loss = adversarial_loss(model, partial(made_ready, model, CPU), model, config, 7, CPU)
    plain = adversarial_loss(expected, lambda: expected, expected, config, 7, CPU)
    for _ in range(2):
        values = []
        for net, step in ((model, loss), (expected, plain)):
            torch.manual_seed(1)
            value, _ = step(nn.CrossEntropyLoss(), Batch(*examples, EPOCH))
            values.append(value)
            net.zero_grad()
            value.backward()  # type: ignore[no-untyped-call]
            with torch.no_grad():
                for parameter in net.parameters():
                    assert parameter.grad is not None
                    parameter -= 0.5 * parameter.grad
        torch.testing.assert_close(*values, rtol=1e-4, atol=1e-4)


def test_eps_is_drawn_for_every_example_and_epoch() -> None:
    config = AdversarialConfig("mix", eps=(0.1, 0.3))
    index = torch.arange(2000)
    drawn = [torch.as_tensor(radii(config, 0, index, torch.tensor([epoch]), 4)) for epoch in (0, 1)]
    assert drawn[0].shape == (2000, 1, 1, 1)
    assert drawn[0].min() >= 0.1
    assert drawn[0].max() < 0.3
    assert drawn[0].unique().numel() > 1900
    assert drawn[0].mean() == pytest.approx(0.2, abs=0.005)
    assert abs(torch.corrcoef(torch.stack([d.flatten() for d in drawn]))[0, 1]) < 0.1
    assert radii(AdversarialConfig(eps=0.2), 0, index, EPOCH, 4) == 0.2


@pytest.mark.parametrize("eps", [0.3, (0.1, 0.3)])
def test_a_ramp_grows_to_the_whole_ball(eps: float | tuple[float, float]) -> None:
    index = torch.arange(5)
    ramp, whole = (AdversarialConfig("mix", eps=eps, ramp_epochs=epochs) for epochs in (3, 0))
    for number, share in enumerate([0.25, 0.5, 0.75, 1, 1]):
        epoch = torch.tensor([number])
        got, of = (torch.as_tensor(radii(config, 0, index, epoch, 4)).expand(5, 1, 1, 1) for config in (ramp, whole))
        torch.testing.assert_close(got, share * of)


@pytest.mark.parametrize("name", ["paper-grey", "paper-cifar10", "trades", "fast", "L2"])
def test_order_and_company_change_nothing(name: str, examples: tuple[Tensor, Tensor, Tensor]) -> None:
    model = network().double()
    x, y, index = examples
    x = x.double()
    whole = crafted(model, (x, y, index), CONFIGS[name])
    order = torch.randperm(12)
    shuffled = crafted(model, (x[order], y[order], index[order]), CONFIGS[name])
    torch.testing.assert_close(shuffled, whole[order], rtol=0, atol=1e-12)
    alone = crafted(model, (x[5:6], y[5:6], index[5:6]), CONFIGS[name])
    torch.testing.assert_close(alone, whole[5:6], rtol=0, atol=1e-12)


def test_another_epoch_is_another_start(examples: tuple[Tensor, Tensor, Tensor]) -> None:
    config = AdversarialConfig("fast", eps=0.1)
    assert not crafted(network(), examples, config).equal(crafted(network(), examples, config, torch.tensor([4])))


def test_the_feed_says_which_examples_and_which_epoch() -> None:
    digits = pclc.load_dataset("digits")
    halves = [Feed(digits, 64, AUGMENTATIONS["none"], torch.device("cpu"), rank, 2) for rank in range(2)]
    for feed in halves:
        feed.start_epoch(0, 3)
        for _ in range(2):
            images, labels = feed.next_batch()
            assert (images * 255).round().byte().equal(digits.images[feed.index])
            assert labels.equal(digits.labels[feed.index])
        assert feed.epoch.tolist() == [3]
    assert not set(halves[0].index.tolist()) & set(halves[1].index.tolist())


class NoHost(TorchDispatchMode):
    """Refuses what a CUDA graph cannot hold: values that go to the host or come from it, shapes that depend on data."""

    REFUSED = ("aten::_local_scalar_dense", "aten::nonzero", "aten::masked_select", "aten::equal", "aten::lift_fresh")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert func.name() not in self.REFUSED, f"{func.name()} cannot be captured"
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_step_can_be_captured(config: AdversarialConfig, examples: tuple[Tensor, Tensor, Tensor]) -> None:
    model = network()
    average = Average(model, 0.9)
    loss = adversarial_loss(model, lambda: model, model, config.resolved(), 0, CPU)
    with NoHost():
        value, _ = loss(nn.CrossEntropyLoss(), Batch(*examples, EPOCH))
        value.backward()  # type: ignore[no-untyped-call]
        average.update()
    with pytest.raises(AssertionError, match="cannot be captured"), NoHost():
        value.item()
