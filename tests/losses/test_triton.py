"""The Triton kernels against the closed form in fp64: compiled on a GPU, in Triton's interpreter elsewhere."""

import pytest
import torch

from pclc.losses import pc_torch
from pclc.losses.pc_rows import Terms

pc_triton = pytest.importorskip("pclc.losses.pc_triton", reason="Triton is not installed")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
INF = float("inf")
pytestmark = pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # NumPy's, inside the interpreter


def compare(logits: torch.Tensor, target: torch.Tensor, terms: Terms, rtol: float = 2e-5, atol: float = 4e-6) -> None:
    exact = logits.double()
    expected, expected_rows = pc_torch.forward(exact, target, terms)
    grad_loss = torch.rand(target.shape)
    expected_grad = pc_torch.backward(grad_loss.double(), exact, target, expected_rows, terms)
    on_device = logits.to(DEVICE), target.to(DEVICE)
    loss, rows = pc_triton.forward(*on_device, terms)
    grad = pc_triton.backward(grad_loss.to(DEVICE, loss.dtype), *on_device, rows, terms)
    assert grad.dtype == logits.dtype
    near_hinge = (exact - (expected_rows.top + expected_rows.tau).unsqueeze(1)).abs().amin(1) < 1e-3
    assert near_hinge.float().mean() < 0.5
    keep = ~near_hinge
    terms_summed = logits.shape[1]
    torch.testing.assert_close(
        loss.cpu().double()[keep], expected[keep], rtol=rtol, atol=2e-6 * terms_summed, equal_nan=True
    )
    keep = keep.unsqueeze(1).expand_as(logits)
    grad_rtol = {torch.bfloat16: 8e-3, torch.float16: 1e-3}.get(logits.dtype, rtol)
    torch.testing.assert_close(
        grad.cpu().double()[keep],
        expected_grad[keep],
        rtol=grad_rtol,
        atol=atol * (1 + terms_summed / 1000),
        equal_nan=True,
    )


def batch(N: int, K: int, D: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor]:
    logits, target = torch.randn(N, K, D) * 3, torch.randint(0, K, (N, D))
    logits.scatter_add_(1, target.unsqueeze(1), torch.rand(N, 1, D) * (10 + K**0.5 / 20))
    target[0, 0] = -100
    return logits.to(dtype), target


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("margin", [0.995, 0.3])
@pytest.mark.parametrize(("N", "K", "D"), [(150, 2, 1), (300, 10, 1), (6, 37, 5), (9, 1000, 1), (3, 4097, 2)])
def test_grid(N: int, K: int, D: int, margin: float, average: bool, soft: bool) -> None:
    compare(*batch(N, K, D), Terms(margin, 0.05, soft, average, -100, False))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype: torch.dtype, soft: bool) -> None:
    compare(
        *batch(40, 12, 1, dtype), Terms(0.995, 0.05, soft, False, -100, False), 1e-7 if dtype == torch.float64 else 2e-5
    )


def test_pc_alone() -> None:
    compare(*batch(40, 12, 1), Terms(0.995, 0.0, False, False, -100, False))


@pytest.mark.parametrize("soft", [False, True])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("masked", [0, 4100])
def test_edges(masked: int, average: bool, soft: bool) -> None:
    """As a short row, and as a long one of which only these four classes take part."""
    rows = torch.tensor(
        [
            [1e4, -1e4, 0.0, 5.0],
            [-1e4, 1e4, 0.0, 5.0],
            [2.0, -INF, 1.0, 0.0],
            [2.0, -INF, -INF, -INF],
            [-INF, 1.0, 2.0, 0.0],
            [-INF, -INF, -INF, -INF],
            [3.0, 1.0, 1.0, 1.0],
        ]
    )
    rows = torch.cat([rows, torch.full((len(rows), masked), -INF)], 1)
    # The soft constraint's gradient is a difference of gaps; at 1e4 they have the spacing of float32 there, 1e-3.
    terms, atol = Terms(0.995, 0.05, soft, average, -100, False), 5e-5 if soft else 4e-6
    compare(rows.unsqueeze(2), torch.zeros(7, 1, dtype=torch.long), terms, atol=atol)


@pytest.mark.parametrize("bad", [float("nan"), INF])
@pytest.mark.parametrize("at", [0, 1])
def test_a_broken_model_is_not_hidden(bad: float, at: int) -> None:
    logits = torch.randn(2, 5, 1, device=DEVICE)
    logits[0, at] = bad
    target = torch.zeros(2, 1, dtype=torch.long, device=DEVICE)
    loss, _ = pc_triton.forward(logits, target, Terms(0.995, 0.05, False, False, -100, False))
    assert loss[0].isnan()
    assert loss[1].isfinite()


def test_strides_and_empty_batches() -> None:
    logits, target = batch(6, 11, 4)
    terms = Terms(0.995, 0.05, False, False, -100, False)
    compare(logits.movedim(1, 2).contiguous().movedim(2, 1), target, terms)
    empty = pc_triton.forward(logits[:0].to(DEVICE), target[:0].to(DEVICE), terms)
    assert empty[0].shape == (0, 4)
    assert pc_triton.backward(empty[0], logits[:0].to(DEVICE), target[:0].to(DEVICE), empty[1], terms).shape == (
        0,
        11,
        4,
    )


@pytest.mark.parametrize("N", [5, 9000])
def test_mean(N: int) -> None:
    """The mean over the rows that count, and its gradient, are those of the single rows."""
    logits, target = batch(N, 4, 1)
    on_device = logits.to(DEVICE), target.to(DEVICE)
    terms = Terms(0.995, 0.05, False, False, -100, True)
    mean, rows = pc_triton.forward(*on_device, terms)
    expected, expected_rows = pc_torch.forward(logits.double(), target, terms)
    torch.testing.assert_close(mean.cpu().double(), expected, rtol=1e-5, atol=0)
    grad = pc_triton.backward(torch.full((N, 1), 2.0, device=DEVICE), *on_device, rows, terms)
    two = torch.full((N, 1), 2.0, dtype=torch.float64)
    expected_grad = pc_torch.backward(two, logits.double(), target, expected_rows, terms)
    torch.testing.assert_close(grad.cpu().double(), expected_grad, rtol=1e-3, atol=1e-6)
