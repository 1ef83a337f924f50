"""The losses of adversarial training against the formula, written again row by row in Python's own numbers."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import pclc
from pclc.training import mart_loss, mix_loss, pc_adversarial_loss, trades_loss
from pclc.training.robust_losses import kl_rows

N, K = 6, 5
Rows = list[list[float]]


def softmax(row: list[float]) -> list[float]:
    powers = [math.exp(z - max(row)) for z in row]
    return [power / sum(powers) for power in powers]


def naive_kl(clean: list[float], adversarial: list[float]) -> float:
    return sum(f * math.log(f / g) for f, g in zip(softmax(clean), softmax(adversarial), strict=True))


def naive_ce(rows: Rows, y: list[int]) -> float:
    return sum(-math.log(softmax(row)[k]) for row, k in zip(rows, y, strict=True)) / len(y)


def naive_mix(clean: Rows, adversarial: Rows, y: list[int]) -> float:
    return naive_ce(clean + adversarial, y + y)


def naive_trades(clean: Rows, adversarial: Rows, y: list[int]) -> float:
    return naive_ce(clean, y) + 6 * sum(map(naive_kl, clean, adversarial)) / len(y)


def naive_mart(clean: Rows, adversarial: Rows, y: list[int]) -> float:
    total = 0.0
    for z, z_adv, k in zip(clean, adversarial, y, strict=True):
        f_adv = softmax(z_adv)
        total -= math.log(f_adv[k])
        total -= math.log(1 - max(f for j, f in enumerate(f_adv) if j != k))
        total += 5 * naive_kl(z, z_adv) * (1 - softmax(z)[k])
    return total / len(y)


CASES = [(mix_loss, naive_mix), (trades_loss, naive_trades), (mart_loss, naive_mart)]


def logits(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    clean, adversarial = (3 * torch.randn(2, N, K, generator=generator, dtype=torch.float64)).to(dtype)
    return clean, adversarial, torch.tensor([0, 1, 2, 3, 4, 0])


@pytest.mark.parametrize(("loss", "naive"), CASES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
def test_values(loss: Callable[..., Tensor], naive: Callable[..., float], dtype: torch.dtype, tolerance: float) -> None:
    clean, adversarial, y = logits(dtype)
    expected = naive(clean.double().tolist(), adversarial.double().tolist(), y.tolist())
    got = loss(clean, adversarial, y)
    assert got.dtype == dtype
    assert got.item() == pytest.approx(expected, rel=tolerance)


@pytest.mark.parametrize("loss", [mix_loss, trades_loss, mart_loss])
def test_gradients(loss: Callable[..., Tensor]) -> None:
    clean, adversarial, y = logits()
    assert torch.autograd.gradcheck(lambda a, b: loss(a, b, y), (clean.requires_grad_(), adversarial.requires_grad_()))


@pytest.mark.parametrize("loss", [mix_loss, trades_loss, mart_loss])
def test_any_criterion_outside(loss: Callable[..., Tensor]) -> None:
    """The criterion's part is linear: what another criterion changes is its own value on the same logits."""
    clean, adversarial, y = logits()
    pc = pclc.PCLoss()
    difference = loss(clean, adversarial, y, pc) - loss(clean, adversarial, y)
    where = {mix_loss: [clean, adversarial], trades_loss: [clean], mart_loss: [adversarial]}[loss]
    expected = sum(pc(z, y) - F.cross_entropy(z, y) for z in where) / len(where)
    torch.testing.assert_close(difference, expected)


def test_beta_weighs_the_kl() -> None:
    clean, adversarial, y = logits()
    at = [trades_loss(clean, adversarial, y, beta=beta) for beta in (0.0, 1.0, 2.0)]
    torch.testing.assert_close(at[0], F.cross_entropy(clean, y))
    torch.testing.assert_close(at[2] - at[1], kl_rows(clean, adversarial).mean())


def test_saturated_logits_stay_finite() -> None:
    clean = torch.tensor([[200.0, 0.0, -200.0]], requires_grad=True)
    adversarial = torch.tensor([[-200.0, 300.0, 0.0]], requires_grad=True)
    for loss in (mix_loss, trades_loss, mart_loss):
        value = loss(clean, adversarial, torch.tensor([0]))
        gradients = torch.autograd.grad(value, (clean, adversarial))
        assert value.isfinite()
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_half_precision_is_computed_in_float32() -> None:
    clean, adversarial, _ = logits(torch.bfloat16)
    assert kl_rows(clean, adversarial).dtype == torch.float32
    torch.testing.assert_close(kl_rows(clean, adversarial), kl_rows(clean.float(), adversarial.float()))


# Every number of its own, and the relatives that are settings of it.
PC_SETTINGS: dict[str, dict[str, float]] = {
    "CE + 10 PC": {},
    "a margin where the structure acts": {"beta": 5.0, "margin": 0.3},
    "half and half": {"beta": 8.0, "clean_share": 0.5},
    "with KL": {"beta": 8.0, "clean_share": 0.25, "kl_weight": 2.0},
    "with LC": {"logit_weight": 0.7},
    "TRADES + PC": {"beta": 2.0, "clean_share": 1.0, "kl_weight": 4.0},
    "CE + MAE": {"beta": 5.0, "margin": 1.0},
    "nothing but CE": {"beta": 0.0},
}
pc_settings = pytest.mark.parametrize("numbers", PC_SETTINGS.values(), ids=PC_SETTINGS)


def naive_pc(clean: Rows, adversarial: Rows, y: list[int], numbers: dict[str, float]) -> float:
    beta, margin, share = numbers.get("beta", 10), numbers.get("margin", 0.995), numbers.get("clean_share", 0)
    total = 0.0
    for z, z_adv, k in zip(clean, adversarial, y, strict=True):
        f = softmax(z_adv)
        false = [j for j in range(len(f)) if j != k]
        total += beta * sum(max(0, f[j] + margin - f[k]) for j in false) / len(false)
        total += numbers.get("logit_weight", 0) * max(0, z_adv[k] - max(z_adv[j] for j in false))
        total += numbers.get("kl_weight", 0) * naive_kl(z, z_adv)
    return (1 - share) * naive_ce(adversarial, y) + share * naive_ce(clean, y) + total / len(y)


class TestPC:
    @pc_settings
    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 1e-5)])
    def test_values(self, numbers: dict[str, float], dtype: torch.dtype, tolerance: float) -> None:
        clean, adversarial, y = logits(dtype)
        expected = naive_pc(clean.double().tolist(), adversarial.double().tolist(), y.tolist(), numbers)
        got = pc_adversarial_loss(clean, adversarial, y, **numbers)
        assert got.dtype == dtype
        assert got.item() == pytest.approx(expected, rel=tolerance)

    @pc_settings
    def test_gradients(self, numbers: dict[str, float]) -> None:
        clean, adversarial, y = logits()
        inputs = clean.requires_grad_(), adversarial.requires_grad_()
        assert torch.autograd.gradcheck(lambda a, b: pc_adversarial_loss(a, b, y, **numbers), inputs)

    def test_a_margin_of_one_is_the_mean_absolute_error_to_the_gradient(self) -> None:
        _, adversarial, y = logits()
        adversarial.requires_grad_()
        f_y = adversarial.softmax(1).gather(1, y[:, None])
        mae = F.cross_entropy(adversarial, y) + 5 * K / (K - 1) * (1 - f_y).mean()
        loss = pc_adversarial_loss(None, adversarial, y, beta=5, margin=1)
        torch.testing.assert_close(loss, mae)
        gradients = [torch.autograd.grad(value, adversarial)[0] for value in (loss, mae)]
        torch.testing.assert_close(*gradients)

    def test_clean_logits_only_where_they_count(self) -> None:
        clean, adversarial, y = logits()
        assert pc_adversarial_loss(None, adversarial, y).equal(pc_adversarial_loss(clean, adversarial, y))
        for name in ("clean_share", "kl_weight"):
            with pytest.raises(ValueError, match=r"Expected `clean` to be logits .*, but got None with clean_share"):
                pc_adversarial_loss(None, adversarial, y, **{name: 0.5})

    def test_label_smoothing_by_the_criterion(self) -> None:
        _, adversarial, y = logits()
        smooth = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
        difference = pc_adversarial_loss(None, adversarial, y, smooth) - pc_adversarial_loss(None, adversarial, y)
        torch.testing.assert_close(difference, smooth(adversarial, y) - F.cross_entropy(adversarial, y))

    def test_half_precision_and_saturated_logits(self) -> None:
        clean, adversarial, y = (100 * tensor for tensor in logits(torch.bfloat16))
        adversarial.requires_grad_()
        loss = pc_adversarial_loss(clean, adversarial, y // 100, kl_weight=1, logit_weight=0.1)
        (gradient,) = torch.autograd.grad(loss, adversarial)
        assert loss.isfinite()
        assert gradient.isfinite().all()
