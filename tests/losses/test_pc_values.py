"""PC-LC against the naive formula in fp64, over shapes, dtypes and both forms."""

import pytest
import torch
from reference import naive_pc_row, naive_pc_rows, near_hinge

from pclc.functional import pc_loss

pytestmark = pytest.mark.usefixtures("each_path")
FORMS = [(constraint, average) for constraint in ("hard", "soft") for average in (False, True)]


def batch(N: int, K: int, dtype: torch.dtype, confident: bool = True) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits whose true class ranges from hopeless to certain, so that every case of the hinge occurs."""
    logits = torch.randn(N, K, dtype=torch.float64) * 2
    target = torch.randint(0, K, (N,))
    if confident:
        logits.scatter_add_(1, target[:, None], torch.linspace(-3, 12 + K**0.5 / 20, N, dtype=torch.float64)[:, None])
    return logits.to(dtype), target


@pytest.mark.parametrize(("constraint", "average"), FORMS)
@pytest.mark.parametrize("margin", [0.995, 0.6, 1.0])
def test_a_class_at_a_time(constraint: str, average: bool, margin: float) -> None:
    logits, target = batch(40, 7, torch.float64)
    logits.requires_grad_()
    expected = torch.stack(
        [naive_pc_row(a, int(y), margin, 0.2, constraint, average) for a, y in zip(logits, target, strict=True)]
    )
    keep = ~near_hinge(logits.detach(), target, margin, 1e-12)
    got = pc_loss(
        logits,
        target,
        margin=margin,
        logit_weight=0.2,
        constraint=constraint,
        average_classes=average,
        reduction="none",
    )
    torch.testing.assert_close(got[keep], expected[keep])
    (expected_grad,) = torch.autograd.grad(expected.sum(), logits)
    (got_grad,) = torch.autograd.grad(got.sum(), logits)
    torch.testing.assert_close(got_grad[keep], expected_grad[keep])


@pytest.mark.parametrize(("constraint", "average"), FORMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("N", "K"), [(64, 2), (300, 3), (257, 10), (64, 256), (64, 257), (33, 1000), (4, 131_072)])
def test_grid(N: int, K: int, dtype: torch.dtype, constraint: str, average: bool) -> None:
    logits, target = batch(N, K, dtype)
    logits.requires_grad_()
    exact = logits.detach().double().requires_grad_()
    expected = naive_pc_rows(exact, target, 0.995, 0.05, constraint, average)
    got = pc_loss(logits, target, constraint=constraint, average_classes=average, reduction="none")
    assert got.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    (expected_grad,) = torch.autograd.grad(expected.sum(), exact)
    (got_grad,) = torch.autograd.grad(got.sum(), logits)
    assert got_grad.dtype == dtype

    keep = ~near_hinge(exact.detach(), target, 0.995, 1e-12 if dtype == torch.float64 else 2e-6)
    assert keep.sum() >= N // 2, "the comparison must not lose its rows"
    # The loss is a sum of up to K terms of one rounding of f_y each.
    rounding = 1e-13 if dtype == torch.float64 else 2e-7
    terms = 1 if average else K
    torch.testing.assert_close(got[keep].double(), expected[keep], rtol=50 * rounding, atol=10 * rounding * terms)
    last_bit = {torch.float64: 1e-11, torch.float32: 2e-5, torch.bfloat16: 8e-3, torch.float16: 1e-3}[dtype]
    # Half precision cannot hold a gradient below its smallest number.
    smallest = 6e-8 if dtype == torch.float16 else 0
    torch.testing.assert_close(
        got_grad[keep].double(), expected_grad[keep], rtol=last_bit, atol=20 * rounding * (1 + K / 1000) + smallest
    )


@pytest.mark.parametrize("margin", [0.5, 0.995])
def test_equation_7(margin: float) -> None:
    """d(f_k + xi - f_y) / d a_y = -f_y (1 - f_y + f_k), summed over the false classes that violate the margin."""
    logits = (torch.randn(50, 6, dtype=torch.float64) * 3).requires_grad_()
    target = torch.randint(0, 6, (50,))
    (grad,) = torch.autograd.grad(pc_loss(logits, target, margin=margin, logit_weight=0, reduction="sum"), logits)
    f = torch.softmax(logits.detach(), 1)
    for i, y in enumerate(target.tolist()):
        violating = [k for k in range(6) if k != y and f[i, k] + margin > f[i, y]]
        expected = sum((-f[i, y] * (1 - f[i, y] + f[i, k]) for k in violating), torch.tensor(0.0, dtype=torch.float64))
        torch.testing.assert_close(grad[i, y], expected)


@pytest.mark.parametrize(("constraint", "average"), FORMS)
@pytest.mark.parametrize("margin", [0.3, 0.995])
def test_derivatives(constraint: str, average: bool, margin: float) -> None:
    logits = (torch.randn(6, 5, dtype=torch.float64) * 2).requires_grad_()
    target = torch.tensor([0, 1, 2, 3, 4, -100])

    def loss(a: torch.Tensor) -> torch.Tensor:
        return pc_loss(
            a, target, margin=margin, logit_weight=0.3, constraint=constraint, average_classes=average, reduction="none"
        )

    assert torch.autograd.gradcheck(loss, logits, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(loss, logits)


def test_defaults_are_the_papers() -> None:
    logits, target = batch(50, 10, torch.float64)
    expected = naive_pc_rows(logits, target, 0.995, 0.05, "hard", False).mean()
    torch.testing.assert_close(pc_loss(logits, target), expected)


def test_stationary_point_of_the_constraint() -> None:
    """With all false logits equal, PC-LC is least at f_y (1 - f_y) = lambda / K."""
    K, f_y = 10, 0.5 + (0.25 - 0.005) ** 0.5
    logits = torch.zeros(1, K, dtype=torch.float64)
    logits[0, 0] = torch.logit(torch.tensor(f_y, dtype=torch.float64)) + torch.log(
        torch.tensor(K - 1.0, dtype=torch.float64)
    )
    logits.requires_grad_()
    (grad,) = torch.autograd.grad(pc_loss(logits, torch.tensor([0])), logits)
    assert abs(float(grad[0, 0])) < 1e-12
