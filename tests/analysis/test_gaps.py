"""Probability gaps with answers that are known."""

import pytest
import torch
from torch import nn

from pclc.analysis import gap_summary, mean_gaps, probability_gap
from pclc.attacks import FGSM, PGD
from pclc.execution import Execution

PROBABILITIES = torch.tensor([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3], [0.25, 0.5, 0.25]])


def test_hand_made() -> None:
    gaps = probability_gap(PROBABILITIES.log(), torch.tensor([0, 1, 0]))
    assert gaps.tolist() == pytest.approx([0.5, 0.3, -0.25], abs=1e-7)
    result = gap_summary("clean", PROBABILITIES.log(), torch.tensor([0, 1, 0]))
    assert result.mean == pytest.approx(0.55 / 3)
    assert result.mean_of_correct == pytest.approx(0.4)
    assert result.correct == pytest.approx(2 / 3)
    assert result.standard_error == pytest.approx(float(gaps.std()) / 3**0.5)
    assert result.examples == 3


def test_invariants() -> None:
    logits, labels = torch.randn(64, 10), torch.randint(10, (64,))
    gaps = probability_gap(logits, labels)
    assert gaps.abs().max() <= 1
    assert ((gaps > 0) == (logits.argmax(1) == labels)).all()
    assert torch.allclose(probability_gap(logits + 50, labels), gaps, atol=1e-5)
    order = torch.randperm(10)
    assert torch.allclose(probability_gap(logits[:, order], order.argsort()[labels]), gaps)
    naive = [
        float(row.double().softmax(0)[y] - max(p for k, p in enumerate(row.double().softmax(0)) if k != y))
        for row, y in zip(logits, labels, strict=True)
    ]
    assert gaps.tolist() == pytest.approx(naive)


def test_edges() -> None:
    wrong = gap_summary("clean", PROBABILITIES.log(), torch.tensor([1, 0, 0]))
    assert wrong.mean_of_correct is None
    assert gap_summary("one", PROBABILITIES[:1].log(), torch.tensor([0])).standard_error == 0.0
    with pytest.raises(ValueError, match="at least one example"):
        gap_summary("none", PROBABILITIES[:0], torch.zeros(0, dtype=torch.int64))


def test_clean_and_under_attacks() -> None:
    model = nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.Dropout()).train()  # eval mode is not the caller's job
    x, y = torch.rand(30, 1, 4, 4), torch.randint(4, (30,))
    attacks = {"fgsm 0.1": FGSM(0.1, stop="never"), "pgd 0.2": PGD(0.2, 0.1, 2, stop="never")}
    results = mean_gaps(model, x, y, attacks)
    assert [result.name for result in results] == ["clean", "fgsm 0.1", "pgd 0.2"]
    assert results[0].mean > results[1].mean > results[2].mean
    assert results == mean_gaps(model, x, y, attacks)
    in_parts = mean_gaps(model, x, y, attacks, execution=Execution(device="cpu", batch_size=7))
    assert [result.mean for result in in_parts] == pytest.approx([result.mean for result in results], abs=1e-6)
    assert model.training


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_figure_of_what_has_no_order(value: float) -> None:
    """The largest of NaN is the first one, which would be right for class 0."""
    x = torch.full((2, 3), 0.5)
    with pytest.raises(ValueError, match="Expected `model` to return logits, but got NaN or inf"):
        mean_gaps(Broken(value), x, torch.zeros(2, dtype=torch.int64))


class Broken(nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.full_like(x, self.value)
