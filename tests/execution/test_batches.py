"""Batches: any number of rows in, the same rows out, at sizes that can be recorded."""

import torch

from pclc.execution import Batched


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
