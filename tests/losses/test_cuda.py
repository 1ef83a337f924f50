"""What only a GPU can show: the kernels under CUDA graphs and autocast, their memory, and the device assertion."""

import subprocess
import sys

import pytest
import torch

import pclc
from pclc.functional import pc_loss

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize(("N", "K"), [(512, 10), (64, 1000), (8, 131_072)])
def test_same_as_on_the_cpu(N: int, K: int, dtype: torch.dtype) -> None:
    logits, target = (torch.randn(N, K) * 2).to(dtype), torch.randint(0, K, (N,))
    results = []
    for device in ("cpu", "cuda"):
        a = logits.detach().to(device).requires_grad_()
        loss = pc_loss(a, target.to(device))
        loss.backward()
        results.append((loss.cpu(), a.grad.cpu()))
    torch.testing.assert_close(results[1], results[0], rtol=1e-2 if dtype.itemsize == 2 else 1e-4, atol=1e-6)


def test_cuda_graph() -> None:
    logits, target = torch.randn(64, 10, device="cuda", requires_grad=True), torch.randint(0, 10, (64,), device="cuda")
    criterion = pclc.PCLoss()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            (grad,) = torch.autograd.grad(criterion(logits, target), logits)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        (grad,) = torch.autograd.grad(criterion(logits, target), logits)
    with torch.no_grad():
        logits.copy_(torch.randn_like(logits))
    graph.replay()
    (expected,) = torch.autograd.grad(criterion(logits, target), logits)
    torch.testing.assert_close(grad, expected)


def test_compiled_with_autocast_and_scaler() -> None:
    model = torch.compile(torch.nn.Linear(32, 10, device="cuda"), fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    x, y = torch.randn(64, 32, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    criterion = torch.compile(pclc.PCLoss(), fullgraph=True)
    before = after = None
    for _ in range(20):
        with torch.autocast("cuda", dtype=torch.float16):
            loss = criterion(model(x), y)
        assert loss.dtype == torch.float32
        before, after = (float(loss) if before is None else before), float(loss)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    assert before is not None
    assert after is not None
    assert after < before


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
def test_on_another_device_than_the_current_one() -> None:
    logits, target = torch.randn(64, 10), torch.randint(0, 10, (64,))
    results = []
    for device in ("cpu", "cuda:1"):
        a = logits.to(device).requires_grad_()
        loss = pc_loss(a, target.to(device))
        (grad,) = torch.autograd.grad(loss, a)
        results.append((loss.detach().cpu(), grad.cpu()))
    assert torch.cuda.current_device() == 0
    torch.testing.assert_close(results[1], results[0], rtol=1e-4, atol=1e-6)


def test_memory() -> None:
    logits = torch.randn(1024, 32_768, device="cuda", requires_grad=True)
    target = torch.randint(0, 32_768, (1024,), device="cuda")
    pc_loss(logits, target).backward()
    logits.grad = None
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    pc_loss(logits, target).backward()
    extra = torch.cuda.max_memory_allocated() - before
    assert extra <= 1.05 * logits.numel() * 4


def test_a_label_out_of_range_ends_as_with_cross_entropy() -> None:
    program = (
        "import torch, pclc; pclc.functional.pc_loss(torch.randn(2, 5, device='cuda'), "
        "torch.tensor([0, 5], device='cuda')); torch.cuda.synchronize()"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert "assert" in result.stderr
