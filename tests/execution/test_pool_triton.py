"""Triton's pooling against PyTorch's, ReLU included: compiled on a GPU, in Triton's interpreter elsewhere."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

pool_triton = pytest.importorskip("pclc.execution.pool_triton", reason="Triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def channels_last(x: Tensor) -> Tensor:
    return x.to(DEVICE).contiguous(memory_format=torch.channels_last)


def reference(before: Tensor, grad: Tensor) -> tuple[Tensor, Tensor]:
    """Of what comes to the ReLU: its pooled output and its gradient."""
    leaf = before.clone().requires_grad_()
    pooled = F.max_pool2d(leaf.relu(), 2)
    return pooled.detach(), torch.autograd.grad(pooled, leaf, grad)[0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("shape", [(2, 8, 4, 6), (3, 5, 7, 9), (2, 64, 2, 2), (0, 4, 4, 4)], ids=str)
def test_it_is_pytorchs(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Small whole numbers, of which most are negative or tie: the gradient goes to the first of the largest."""
    torch.manual_seed(0)
    before = channels_last(torch.randint(-3, 3, shape).to(dtype))
    n, c, h, w = shape
    grad = torch.randn(n, c, h // 2, w // 2).to(dtype).to(DEVICE)
    y = before.relu()
    pooled, gradient = reference(before, grad)
    assert torch.equal(pool_triton.pool(y), pooled)
    assert torch.equal(pool_triton.pool_gradient(grad, y), gradient)
    assert pool_triton.pool(y).dtype == dtype


def test_a_number_that_is_none_is_seen() -> None:
    for place in range(4):
        y = channels_last(torch.rand(1, 2, 2, 2))
        y[0, 0, place // 2, place % 2] = torch.nan
        assert pool_triton.pool(y).isnan().flatten().tolist() == [True, False]
        grad = pool_triton.pool_gradient(torch.full((1, 2, 1, 1), torch.nan, device=DEVICE), y)
        assert grad.isnan().sum(dim=(2, 3)).flatten().tolist() == [1, 1]


@pytest.mark.cuda
def test_more_numbers_than_32_bits_count() -> None:
    y = torch.zeros(2**15 + 1, 64, 32, 32, dtype=torch.float16, device="cuda").to(memory_format=torch.channels_last)
    y[-1] = 1
    pooled = pool_triton.pool(y)
    assert pooled[-1].eq(1).all()
    assert not pooled[:-1].any()
    grad = pool_triton.pool_gradient(torch.ones_like(pooled), y)
    assert grad[-1, :, ::2, ::2].eq(1).all()
    assert not grad[:-1].any()
