"""Batches: any number of rows in, the same rows out, at sizes that can be recorded."""

import weakref

import pytest
import torch

from pclc.execution import Batched, batches


def test_all_batches_are_joined_in_order():
    asked = []

    def work(a, b):
        asked.append(len(a))
        return a + b, a.sum(1)

    a, b = torch.randn(7, 3), torch.randn(7, 3)
    total, sums = Batched(work, 3)(a, b)
    assert asked == [3, 3, 1]
    assert torch.equal(total, a + b)
    assert torch.equal(sums, a.sum(1))


def test_no_rows_give_no_rows():
    (result,) = Batched(lambda a: (a[:, :2],), 3)(torch.empty(0, 5))
    assert result.shape == (0, 2)


def test_buckets_hold_what_is_put_into_them_and_are_few():
    batched = Batched(lambda a: (a,), 1000)
    sizes = {n: batched._bucket(n) for n in range(1, 1001)}
    assert all(n <= size for n, size in sizes.items())
    assert all(size <= 2 * n for n, size in sizes.items() if n >= 16)
    assert len(set(sizes.values())) <= 14


def test_with_few_sizes_batches_are_padded_and_nobody_sees_it():
    asked = []

    def work(a, b):
        asked.append(len(a))
        return a + b, a.sum(1)

    batched = Batched(work, 32, few_sizes=True)
    for n in (20, 23, 24, 5, 40, 32):
        a, b = torch.rand(n, 3), torch.rand(n, 3)
        total, sums = batched(a, b)
        assert torch.equal(total, a + b)
        assert torch.equal(sums, a.sum(1))
    assert asked == [24, 24, 24, 12, 32, 12, 32]
    assert batched(torch.empty(0, 3), torch.empty(0, 3))[0].shape == (0, 3)


def run_through(work, device, warm_ups, pool):
    """Stands in for `captured`: there are no graphs on a CPU."""
    for _ in range(warm_ups + 1):
        work()
    return work


def test_a_replay_answers_for_its_own_rows(monkeypatch):
    asked, memory = [], torch.empty(24, 3)  # work that always writes to the same place, as a graph does

    def work(a):
        asked.append(len(a))
        return (memory[: len(a)].copy_(a * 2 + 1),)

    monkeypatch.setattr(batches, "captured", run_through)
    batched = Batched(work, 32, graphs=True)
    for n in (20, 24, 22, 19, 23):
        a = torch.rand(n, 3)
        assert torch.equal(batched(a)[0], a * 2 + 1)
    assert asked == [20, 24, *[24] * 6], "two calls as they are, then padded to one size"


def test_replays_of_single_rows_leave_the_callers_tensors_alone(monkeypatch):
    memory = torch.empty(1, 3)
    monkeypatch.setattr(batches, "captured", run_through)
    batched = Batched(lambda a: (memory.copy_(a * 2 + 1),), 1, graphs=True)
    a = torch.rand(6, 3)
    before = a.clone()
    for row in range(6):
        assert torch.equal(batched(a[row : row + 1])[0], before[row : row + 1] * 2 + 1)
    assert torch.equal(a, before)


def test_a_replay_that_does_nothing_is_not_used(monkeypatch):
    """CUDA records nothing of work on another device or stream: it is done at once, and never again."""
    asked = []

    def work(a):
        asked.append(len(a))
        return (a * 2 + 1,)

    def captured(work, device, warm_ups, pool):
        run_through(work, device, warm_ups, pool)
        return lambda: None

    monkeypatch.setattr(batches, "captured", captured)
    batched = Batched(work, 32, graphs=True)
    for n in (20, 24, 22, 19, 23):
        a = torch.rand(n, 3)
        assert torch.equal(batched(a)[0], a * 2 + 1)
    assert asked[-3:] == [22, 19, 23]


def test_work_is_recorded_on_the_device_of_its_rows_and_not_again_where_that_fails(monkeypatch):
    devices = []

    def captured(work, device, warm_ups, pool):
        devices.append(device)
        raise RuntimeError("no graphs here")

    monkeypatch.setattr(batches, "captured", captured)
    batched = Batched(lambda a: (a,), 64, graphs=True)
    batched(torch.zeros(64, 1))
    batched(torch.zeros(64, 1))
    with pytest.warns(UserWarning, match="cannot be captured"):
        batched(torch.zeros(64, 1))
    for _ in range(3):
        batched(torch.zeros(1, 1))
    assert devices == [torch.device("cpu")]


def test_a_failed_pass_is_let_go_before_memory_is_emptied(monkeypatch):
    made = []

    def work(a):
        result = a + 1
        if len(a) > 4:
            made.append(weakref.ref(result))
            raise torch.OutOfMemoryError
        return (result,)

    def empty_cache():
        assert made[-1]() is None, "what the failed pass made is still there"

    monkeypatch.setattr(torch.cuda, "empty_cache", empty_cache)
    with pytest.warns(UserWarning, match="4 examples at a time"):
        assert len(Batched(work, 8)(torch.zeros(8, 1))[0]) == 8
    assert made
