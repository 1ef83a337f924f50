"""A checkpoint says what is computed; how it is computed is up to the optimizer that goes on from it."""

import copy

import pytest
import torch
from torch import Tensor, nn

from pclc import TrainConfig
from pclc.training.optimizers import load_optimizer, make_optimizer

CPU = torch.device("cpu")


def steps(optimizer: torch.optim.Optimizer, weight: Tensor, count: int) -> None:
    for _ in range(count):
        weight.grad = weight.detach().sin()
        optimizer.step()


@pytest.mark.parametrize("saved", [True, False])
def test_the_flags_are_the_optimizers_own(saved: bool) -> None:
    """As from a GPU, where steps are captured, to a CPU and back."""
    weight = nn.Parameter(torch.ones(3))
    flags = {"capturable": saved, "foreach": not saved, "fused": False}
    state = torch.optim.Adam([weight], **flags).state_dict()
    own = {"capturable": not saved, "foreach": saved, "fused": False}
    optimizer = torch.optim.Adam([weight], **own)
    load_optimizer(optimizer, state)
    assert {name: optimizer.param_groups[0][name] for name in own} == own
    assert {name: state["param_groups"][0][name] for name in flags} == flags, "the checkpoint is left alone"


@pytest.mark.parametrize("name", ["adam", "sgd"])
def test_what_is_computed_is_the_checkpoints(name: str) -> None:
    config = TrainConfig(optimizer=name, lr=0.1, weight_decay=0.01)  # type: ignore[arg-type]
    weight = nn.Parameter(torch.ones(3))
    optimizer = make_optimizer(config, [weight], CPU)
    optimizer.param_groups[0]["lr"] = torch.tensor(0.05)  # as on a GPU
    steps(optimizer, weight, 3)
    state = copy.deepcopy(optimizer.state_dict())
    if name == "adam":
        state["param_groups"][0]["capturable"] = True  # a CPU refuses to make such a step
    other = nn.Parameter(weight.detach().clone())
    resumed = make_optimizer(TrainConfig(optimizer=name, lr=0.7), [other], CPU)  # type: ignore[arg-type]
    load_optimizer(resumed, state)
    assert resumed.param_groups[0]["lr"] == pytest.approx(0.05)
    assert isinstance(resumed.param_groups[0]["lr"], float)
    for each, parameter in ((optimizer, weight), (resumed, other)):
        steps(each, parameter, 3)
    assert torch.equal(weight, other)


def test_a_rate_on_the_device_stays_the_same_tensor() -> None:
    """A captured step reads it where it was."""
    weight = nn.Parameter(torch.ones(3))
    rate = torch.tensor(0.7)
    optimizer = torch.optim.SGD([weight], lr=rate)
    load_optimizer(optimizer, torch.optim.SGD([weight], lr=0.1).state_dict())
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(0.1)


def test_the_usual_momentum_of_sgd() -> None:
    weight = nn.Parameter(torch.ones(3))
    assert make_optimizer(TrainConfig(optimizer="sgd"), [weight], CPU).defaults["momentum"] == 0.9
    assert make_optimizer(TrainConfig(optimizer="sgd", momentum=0.0), [weight], CPU).defaults["momentum"] == 0.0
