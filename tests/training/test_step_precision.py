"""A step's backward pass in the precision that was asked for, and totals that no precision rounds."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pclc import Execution
from pclc.data import Dataset
from pclc.data.augment import Augmentation
from pclc.data.feed import Feed
from pclc.execution.settings import Precision
from pclc.training.batch_loss import plain_loss
from pclc.training.step import Step

SEEN: list[tuple[str, bool]] = []


class Looking(torch.autograd.Function):
    """The identity, which notes what convolutions would use where it is passed."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        SEEN.append(("forward", torch.backends.cudnn.allow_tf32))
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        SEEN.append(("backward", torch.backends.cudnn.allow_tf32))
        return grads[0]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = Looking.apply(self.linear(x.flatten(1)))  # type: ignore[no-untyped-call]
        return logits


def make_step(digits: Dataset, execution: Execution, criterion: nn.Module, batch_size: int) -> Step:
    model, device = Network(), torch.device("cpu")
    feed = Feed(digits.subset(torch.arange(batch_size)), batch_size, Augmentation(), device)
    feed.start_epoch(0, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Step(model, plain_loss(model, execution), [criterion], optimizer, feed, execution, capture=False)


@pytest.mark.parametrize(("precision", "tf32"), [("fp32", False), ("tf32", True)])
@pytest.mark.parametrize("default", [False, True])
def test_tf32_is_on_or_off_in_both_directions(
    precision: Precision, tf32: bool, default: bool, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch lets convolutions use TF32 where nobody says otherwise: float32 must mean float32 for gradients too."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", default)
    SEEN.clear()
    make_step(digits, Execution(device="cpu", precision=precision), nn.CrossEntropyLoss(), 32)()
    assert [("forward", tf32), ("backward", tf32)] == SEEN
    assert torch.backends.cudnn.allow_tf32 == default


def test_a_count_of_examples_is_not_rounded(digits: Dataset) -> None:
    class Half(nn.Module):
        def forward(self, logits: Tensor, y: Tensor) -> Tensor:
            return nn.functional.cross_entropy(logits, y).bfloat16()

    step = make_step(digits, Execution(device="cpu"), Half(), 301)
    step()
    assert step.take_totals()[2] == 301
