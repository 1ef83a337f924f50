"""A step that does not fit into memory: what is left of it, and what is not."""

import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from pclc import Execution
from pclc.data import Dataset
from pclc.data.augment import Augmentation
from pclc.data.feed import Feed
from pclc.training import step as step_module
from pclc.training.average import Average
from pclc.training.batch_loss import plain_loss
from pclc.training.step import Step

CPU = Execution(device="cpu")


def make_step(digits: Dataset, forward: Callable[[Tensor], Tensor], model: nn.Module, capture: bool = False) -> Step:
    feed = Feed(digits.subset(torch.arange(32)), 32, Augmentation(), torch.device("cpu"))
    feed.start_epoch(0, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    criterion = nn.CrossEntropyLoss()
    return Step(model, plain_loss(forward, CPU), [criterion], optimizer, feed, CPU, capture, Average(model, 0.9))


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))


def test_a_failed_pass_is_let_go_before_the_next_one(digits: Dataset) -> None:
    model = network()
    seen: list[weakref.ref[Tensor]] = []

    def forward(x: Tensor) -> Tensor:
        assert all(earlier() is None for earlier in seen), "what the failed pass made is still there"
        logits: Tensor = model(x)
        if len(x) > 8:
            seen.append(weakref.ref(logits))
            raise torch.OutOfMemoryError
        return logits

    with pytest.warns(UserWarning, match="processed in 4 parts"):
        make_step(digits, forward, model)()
    assert len(seen) == 2


def test_parts_of_a_failed_step_do_not_count(digits: Dataset) -> None:
    model, calls = network(), []

    def forward(x: Tensor) -> Tensor:
        calls.append(len(x))
        if len(calls) in (1, 3):  # the whole batch, and the second of its halves
            raise torch.OutOfMemoryError
        logits: Tensor = model(x)
        return logits

    step = make_step(digits, forward, model)
    with pytest.warns(UserWarning, match="processed in 4 parts"):
        step()
    assert calls == [32, 16, 16, 8, 8, 8, 8]
    assert step.take_totals()[2] == 32


@pytest.mark.parametrize("updates_before", [0, 1], ids=["at once", "after an update"])
def test_a_recording_that_fails_leaves_no_update(
    updates_before: int, digits: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Recording runs the step. Where it does not fit, it is recorded again in halves, from the weights at first."""
    model, recordings, devices = network(), [], []
    before = {name: value.clone() for name, value in model.state_dict().items()}

    def recorded(work: Callable[[], None], device: torch.device) -> Callable[[], None]:  # there are no graphs on a CPU
        recordings.append(work)
        devices.append(device)
        fails = len(recordings) == 1
        for _ in range(updates_before if fails else 2):
            work()
        if fails:
            raise torch.OutOfMemoryError
        return work

    monkeypatch.setattr(step_module, "captured", recorded)
    with pytest.warns(UserWarning, match="processed in 2 parts"):
        step = make_step(digits, model, model, capture=True)
    assert len(recordings) == 2
    assert devices == 2 * [torch.device("cpu")]
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())
    eager_model = network()
    eager = make_step(digits, eager_model, eager_model)
    eager._parts = 2
    step()
    eager()
    assert all(value.equal(eager_model.state_dict()[name]) for name, value in model.state_dict().items())
    assert step.take_totals().equal(eager.take_totals())
