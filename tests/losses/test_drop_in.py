"""Each loss takes what cross-entropy takes, reduces as it does, and refuses the rest with a sentence."""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from reference import naive_gce_row

import pclc
from pclc.functional import complement_entropy, guided_complement_entropy, pc_loss

pytestmark = pytest.mark.usefixtures("each_path")
LOSSES = [pc_loss, guided_complement_entropy, complement_entropy]
Loss = Callable[..., torch.Tensor]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("shape", [(5,), (4, 5), (4, 5, 3), (2, 5, 3, 2), (2, 300, 3)])
def test_shapes(loss: Loss, shape: tuple[int, ...]) -> None:
    """Any layout gives what the same rows give as a matrix."""
    logits = torch.randn(shape, dtype=torch.float64)
    K = shape[0] if len(shape) == 1 else shape[1]
    target = torch.randint(0, K, shape[2:] if len(shape) == 1 else shape[:1] + shape[2:])
    got = loss(logits, target, reduction="none")
    assert got.shape == F.cross_entropy(logits, target, reduction="none").shape
    rows = logits[None] if logits.dim() == 1 else logits.movedim(1, -1).reshape(-1, K)
    torch.testing.assert_close(got.reshape(-1), loss(rows, target.reshape(-1), reduction="none"))


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("layout", ["transposed", "channels_last", "slice", "expanded"])
def test_memory_layouts(loss: Loss, layout: str) -> None:
    logits = {
        "transposed": lambda: torch.randn(300, 6).T,
        "channels_last": lambda: torch.randn(2, 300, 3, 4).to(memory_format=torch.channels_last),
        "slice": lambda: torch.randn(6, 900)[:, ::3],
        "expanded": lambda: torch.randn(1, 300).expand(6, 300),
    }[layout]()
    target = torch.randint(0, 300, logits.shape[:1] + logits.shape[2:])
    leaf = logits.clone(memory_format=torch.contiguous_format).requires_grad_()
    expected, got = loss(leaf, target), loss(logits, target)
    torch.testing.assert_close(got, expected)
    (expected_grad,) = torch.autograd.grad(expected, leaf)
    strided = logits.detach().requires_grad_()
    (got_grad,) = torch.autograd.grad(loss(strided, target), strided)
    torch.testing.assert_close(got_grad, expected_grad)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("ignore_index", [-100, 2])
@pytest.mark.parametrize("weighted", [False, True])
def test_reductions_are_cross_entropys(loss: Loss, ignore_index: int, weighted: bool) -> None:
    """The factor between "none" and the reductions must be the one that cross-entropy uses."""
    logits, target = torch.randn(8, 4, 3, dtype=torch.float64), torch.randint(0, 4, (8, 3))
    target[0, 0] = ignore_index
    weight = torch.tensor([0.5, 2.0, 3.0, 0.0], dtype=torch.float64) if weighted else None
    rows = loss(logits, target, ignore_index=ignore_index, reduction="none")
    counted = target != ignore_index
    assert (rows[~counted] == 0).all()
    row_weight = torch.where(counted, 1.0 if weight is None else weight[torch.where(counted, target, 0)], 0.0)

    def reduced(reduction: str) -> torch.Tensor:
        return loss(logits, target, weight=weight, ignore_index=ignore_index, reduction=reduction)

    torch.testing.assert_close(reduced("none"), rows * row_weight)
    torch.testing.assert_close(reduced("sum"), (rows * row_weight).sum())
    torch.testing.assert_close(reduced("mean"), (rows * row_weight).sum() / row_weight.sum().double())
    # and the same relation holds for cross-entropy itself
    ce = F.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none")
    torch.testing.assert_close(
        F.cross_entropy(logits, target, weight=weight, ignore_index=ignore_index),
        (ce * row_weight).sum() / row_weight.sum().double(),
    )


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize(
    "target", [torch.empty(0, dtype=torch.long), torch.tensor([-100, -100])], ids=["empty", "all ignored"]
)
def test_nothing_to_learn_from(loss: Loss, reduction: str, target: torch.Tensor) -> None:
    logits = torch.randn(len(target), 5, requires_grad=True)
    got = loss(logits, target, reduction=reduction)
    expected = F.cross_entropy(logits, target, reduction=reduction)
    torch.testing.assert_close(got, expected, equal_nan=True)
    if reduction != "mean":
        got.sum().backward()
        assert logits.grad is not None
        assert (logits.grad == 0).all()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_out_in_fp32(loss: Loss, dtype: torch.dtype) -> None:
    logits, target = torch.randn(8, 5).to(dtype), torch.randint(0, 5, (8,))
    got = loss(logits, target)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, loss(logits.float(), target))


@pytest.mark.parametrize("loss", LOSSES)
def test_refusals(loss: Loss) -> None:
    logits, target = torch.randn(4, 5), torch.randint(0, 5, (4,))
    with pytest.raises(TypeError, match=r"Probability targets and label smoothing have no meaning"):
        loss(logits, torch.softmax(logits, 1))
    with pytest.raises(TypeError, match=r"`logits` to be floating point, but got torch\.int64"):
        loss(logits.long(), target)
    with pytest.raises(TypeError, match=r"class indices \(int64\), but got torch\.int32"):
        loss(logits, target.int())
    with pytest.raises(ValueError, match=r"`target` of shape \(4,\) for `logits` of shape \(4, 5\), but got \(3,\)"):
        loss(logits, target[:3])
    with pytest.raises(ValueError, match=r"got a scalar"):
        loss(torch.tensor(1.0), torch.tensor(0))
    with pytest.raises(ValueError, match=r"at least [23] classes, but dimension 1 of `logits` has size 1"):
        loss(logits[:, :1], target)
    with pytest.raises(ValueError, match=r"`weight` of shape \(5,\)"):
        loss(logits, target, weight=torch.ones(4))
    with pytest.raises(ValueError, match=r"`reduction` to be one of .* but got 'average'"):
        loss(logits, target, reduction="average")
    for label in (5, -1):
        with pytest.raises(ValueError, match=r"every label in `target` to lie in \[0, 4\]"):
            loss(logits, torch.tensor([0, 1, label, 2]))
    with pytest.raises(TypeError, match="label_smoothing"):
        loss(logits, target, label_smoothing=0.1)


@pytest.mark.parametrize("margin", [0.0, -0.1, 1.1, float("nan")])
def test_margin_out_of_range(margin: float) -> None:
    with pytest.raises(ValueError, match=r"`margin` to lie in \(0, 1\], but got"):
        pc_loss(torch.randn(2, 3), torch.tensor([0, 1]), margin=margin)


def test_other_arguments_out_of_range() -> None:
    logits, target = torch.randn(2, 3), torch.tensor([0, 1])
    with pytest.raises(ValueError, match="`logit_weight` to be finite"):
        pc_loss(logits, target, logit_weight=-1)
    with pytest.raises(ValueError, match='`constraint` to be "hard" or "soft"'):
        pc_loss(logits, target, constraint="firm")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="`alpha` to be finite"):
        guided_complement_entropy(logits, target, alpha=-1)
    with pytest.raises(ValueError, match="at least 3 classes"):
        guided_complement_entropy(logits[:, :2], target)


@pytest.mark.parametrize("alpha", [0.0, 1 / 3, 1.0])
def test_guided_complement_entropy_is_its_formula(alpha: float) -> None:
    logits = (torch.randn(12, 6, dtype=torch.float64) * 2).requires_grad_()
    target = torch.randint(0, 6, (12,))
    expected = torch.stack([naive_gce_row(a, int(y), alpha) for a, y in zip(logits, target, strict=True)])
    got = guided_complement_entropy(logits, target, alpha=alpha, reduction="none")
    torch.testing.assert_close(got, expected)
    (expected_grad,) = torch.autograd.grad(expected.sum(), logits)
    (got_grad,) = torch.autograd.grad(got.sum(), logits)
    torch.testing.assert_close(got_grad, expected_grad)
    assert torch.autograd.gradgradcheck(lambda a: guided_complement_entropy(a, target, alpha=alpha), logits)


def test_guided_complement_entropy_at_the_edges() -> None:
    inf = float("inf")
    logits = torch.tensor(
        [
            [1e4, -1e4, -1e4, 0.0],
            [-inf, 0.0, 1.0, 2.0],
            [0.0, 1.0, 1.0, -inf],
            [0.0, 1.0, -inf, -inf],
            [0.0, -inf, -inf, -inf],
        ]
    ).requires_grad_()
    got = guided_complement_entropy(logits, torch.zeros(5, dtype=torch.long), reduction="none")
    got.sum().backward()
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    assert got[1] == 0  # f_y = 0
    two_left = torch.sigmoid(-torch.log(torch.tensor(2.0) * torch.e)) ** (1 / 3)
    torch.testing.assert_close(got[2], -two_left)  # q is flat over the two classes that are left
    assert (got[3:] == 0).all()  # fewer than two false classes have no entropy
    broken = guided_complement_entropy(torch.tensor([[0.0, float("nan"), 1.0]]), torch.tensor([0]))
    assert broken.isnan()


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (
            pclc.PCLoss(0.9, 0.1, "soft", True),
            partial(pc_loss, margin=0.9, logit_weight=0.1, constraint="soft", average_classes=True),
        ),
        (pclc.GuidedComplementEntropy(0.5), partial(guided_complement_entropy, alpha=0.5)),
        (pclc.ComplementEntropy(), complement_entropy),
    ],
    ids=["PCLoss", "GuidedComplementEntropy", "ComplementEntropy"],
)
def test_modules_are_their_functions(module: torch.nn.Module, function: Loss) -> None:
    module = copy.deepcopy(module)
    logits, target = torch.randn(6, 4), torch.tensor([0, 1, 2, 3, 1, 1])
    torch.testing.assert_close(module(logits, target), function(logits, target))
    module.weight = torch.rand(4)
    module.ignore_index, module.reduction = 1, "sum"
    torch.testing.assert_close(
        module(logits, target), function(logits, target, weight=module.weight, ignore_index=1, reduction="sum")
    )
    assert "weight" in dict(module.named_buffers()), "the weights move with .to()"


def test_what_a_module_shows() -> None:
    assert repr(pclc.PCLoss()) == ("PCLoss(margin=0.995, logit_weight=0.05, constraint='hard', average_classes=False)")


@pytest.mark.parametrize(
    ("loss", "settings", "sentence"),
    [
        (pclc.PCLoss, {"margin": 2}, r"`margin` to lie in \(0, 1\], but got 2"),
        (pclc.PCLoss, {"logit_weight": -1}, "`logit_weight` to be finite"),
        (pclc.PCLoss, {"constraint": "firm"}, "`constraint` to be"),
        (pclc.PCLoss, {"reduction": "avg"}, "`reduction` to be one of"),
        (pclc.GuidedComplementEntropy, {"alpha": -1}, "`alpha` to be finite"),
        (pclc.GuidedComplementEntropy, {"reduction": "avg"}, "`reduction` to be one of"),
        (pclc.ComplementEntropy, {"reduction": "avg"}, "`reduction` to be one of"),
    ],
)
def test_a_module_refuses_when_it_is_made(loss: Any, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        loss(**settings)
