"""Huge logits, masked classes, ties, NaN: where a loss goes wrong in silence."""

import math

import pytest
import torch

from pclc.functional import complement_entropy, guided_complement_entropy, pc_loss

pytestmark = pytest.mark.usefixtures("each_path")
INF = float("inf")
FORMS = [
    {"constraint": constraint, "average_classes": average, "logit_weight": weight}
    for constraint, average, weight in [
        ("hard", False, 0.05),
        ("hard", True, 0.5),
        ("soft", False, 0.05),
        ("hard", False, 0.0),
    ]
]


def loss_and_grad(logits: torch.Tensor, target: torch.Tensor, **kwargs: object) -> tuple[torch.Tensor, torch.Tensor]:
    logits = logits.clone().requires_grad_()
    loss = pc_loss(logits, target, reduction="none", **kwargs)
    (grad,) = torch.autograd.grad(loss.sum(), logits)
    return loss.detach(), grad


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("K", [3, 300])
def test_huge_logits(form: dict[str, object], dtype: torch.dtype, K: int) -> None:
    logits = torch.full((4, K), -1e4, dtype=dtype)
    logits[0, 0] = logits[1, 1] = 1e4
    logits[2] = 1e4
    target = torch.tensor([0, 0, 0, 0])
    loss, grad = loss_and_grad(logits, target, **form)
    assert loss.isfinite().all()
    assert grad.isfinite().all()
    classes = 1 if form["average_classes"] else K - 1
    violating = (0.995 * (K - 1) + 1) / (K - 1) * classes
    flat = (0.995 * (K - 1)) / (K - 1) * classes
    expected = torch.tensor([form["logit_weight"] * 2e4, violating, flat, flat], dtype=dtype)
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("K", [6, 400])
def test_a_masked_class_counts_nowhere(form: dict[str, object], K: int) -> None:
    """-inf must give what a model without that class gives: in PC, in LC and in the K - 1."""
    logits = torch.randn(20, K, dtype=torch.float64) * 3
    target = torch.randint(0, K - 2, (20,))
    masked = torch.cat([logits, torch.full((20, 3), -INF, dtype=torch.float64)], 1)
    loss, grad = loss_and_grad(logits, target, **form)
    masked_loss, masked_grad = loss_and_grad(masked, target, **form)
    torch.testing.assert_close(masked_loss, loss)
    torch.testing.assert_close(masked_grad[:, :K], grad)
    assert (masked_grad[:, K:] == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("K", [4, 400])
def test_no_false_class_left(form: dict[str, object], K: int) -> None:
    logits = torch.full((2, K), -INF)
    logits[0, 1] = 3.0
    loss, grad = loss_and_grad(logits, torch.tensor([1, 1]), **form)
    assert (loss == 0).all()
    assert (grad == 0).all()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("K", [4, 400])
def test_true_class_masked(form: dict[str, object], K: int) -> None:
    logits = torch.randn(1, K)
    logits[0, 2] = -INF
    loss, grad = loss_and_grad(logits, torch.tensor([2]), **form)
    classes = 1 if form["average_classes"] else K - 1
    torch.testing.assert_close(loss, torch.tensor([(0.995 * (K - 1) + 1) / (K - 1) * classes]))
    assert grad.isfinite().all()


@pytest.mark.parametrize("bad", [float("nan"), INF])
@pytest.mark.parametrize("at", [0, 1])
@pytest.mark.parametrize("K", [3, 400])
def test_a_broken_model_is_not_hidden(bad: float, at: int, K: int) -> None:
    logits = torch.randn(2, K)
    logits[0, at] = bad
    for form in FORMS:
        loss, _ = loss_and_grad(logits, torch.tensor([0, 0]), **form)
        assert loss[0].isnan(), "cross-entropy gives NaN here, and so must this loss"
        assert loss[1].isfinite()


def test_a_broken_model_is_not_hidden_behind_a_mask() -> None:
    logits = torch.tensor([[float("nan"), -INF, -INF], [1.0, -INF, -INF]])
    loss, _ = loss_and_grad(logits, torch.tensor([0, 0]))
    assert loss.isnan().tolist() == [True, False]


def test_equal_false_classes_the_first_takes_the_gradient() -> None:
    for K in (5, 300):
        logits = torch.zeros(1, K, dtype=torch.float64)
        logits[0, 1] = 9.0
        _, with_constraint = loss_and_grad(logits, torch.tensor([1]), logit_weight=0.5)
        _, without = loss_and_grad(logits, torch.tensor([1]), logit_weight=0.0)
        expected = torch.zeros(1, K, dtype=torch.float64)
        expected[0, 1], expected[0, 0] = 0.5, -0.5
        torch.testing.assert_close(with_constraint - without, expected)


def test_constraint_at_its_kink_has_no_gradient() -> None:
    logits = torch.tensor([[1.0, 1.0, 0.0]], dtype=torch.float64)
    _, with_constraint = loss_and_grad(logits, torch.tensor([0]), logit_weight=0.5)
    _, without = loss_and_grad(logits, torch.tensor([0]), logit_weight=0.0)
    torch.testing.assert_close(with_constraint, without)


def test_at_the_hinge_either_one_sided_derivative() -> None:
    """f_y - f_k = 3/4 - 1/4 = margin exactly: the loss is 0 and the gradient one of the two limits."""
    logits = torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64)
    loss, grad = loss_and_grad(logits, torch.tensor([0]), margin=0.5, logit_weight=0.0)
    assert abs(float(loss[0])) < 1e-15
    violated = torch.tensor([[-0.375, 0.375]], dtype=torch.float64)
    assert torch.allclose(grad, violated) or (grad == 0).all()


def test_certain_rows_cost_nothing() -> None:
    logits = torch.tensor([[20.0, 0.0, 0.0]])
    loss, grad = loss_and_grad(logits, torch.tensor([0]), logit_weight=0.0)
    assert loss == 0
    assert (grad == 0).all()


def test_rows_of_no_pixels():
    logits, y = torch.zeros(2, 5, 0, requires_grad=True), torch.zeros(2, 0, dtype=torch.int64)
    loss = pc_loss(logits, y, reduction="sum")
    loss.backward()
    assert loss == 0
    assert logits.grad.shape == (2, 5, 0)


@pytest.mark.parametrize("loss", [guided_complement_entropy, complement_entropy])
@pytest.mark.parametrize(
    "bad", [[float("inf"), 0.0, 1.0], [0.0, float("nan"), 1.0], [float("nan"), 0.0, -float("inf")]]
)
def test_complement_entropy_of_what_is_no_number(loss, bad):
    rows = loss(torch.tensor([bad, [0.0, 1.0, 2.0]]), torch.tensor([0, 0]), reduction="none")
    assert rows.isnan().tolist() == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_true_class_level_with_the_one_that_violates_the_margin(dtype: torch.dtype) -> None:
    """There M - c f_y is exactly zero, as at the first step of two classes with a head of zeros."""
    loss, grad = loss_and_grad(torch.zeros(1, 2, dtype=dtype), torch.tensor([0]), margin=0.3, logit_weight=0)
    torch.testing.assert_close(loss, torch.tensor([0.3], dtype=dtype))
    torch.testing.assert_close(grad, torch.tensor([[-0.5, 0.5]], dtype=dtype))
