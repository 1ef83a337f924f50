"""What the tests of evaluation share: a small model, half trained, on digits."""

from typing import NamedTuple

import pytest
import torch
from torch import Tensor, nn

import pclc


class Case(NamedTuple):
    model: nn.Module
    x: Tensor
    y: Tensor


@pytest.fixture(scope="session")
def trained() -> nn.Module:
    torch.manual_seed(0)
    config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=4, batch_size=64, lr=0.005)
    execution = pclc.Execution(device="cpu")
    return pclc.train(pclc.create_model("lenet8"), pclc.load_dataset("digits"), config, execution=execution).model


@pytest.fixture
def case(trained: nn.Module) -> Case:
    test = pclc.load_dataset("digits", "test")
    return Case(trained.eval(), test.images[:120].float() / 255, test.labels[:120])
