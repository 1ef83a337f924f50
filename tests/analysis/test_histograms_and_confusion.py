"""Histograms lose no example; confusions count what they say."""

import pytest
import torch
from torch.nn import functional as F

from pclc.analysis import confusion, histograms, loss_and_margin


def test_loss_and_margin() -> None:
    logits, labels = torch.tensor([[2.0, 0.0, 1.0], [0.0, 3.0, 1.0], [-1.0, -5.0, -4.0]]), torch.tensor([0, 2, 0])
    found = loss_and_margin(logits, labels)
    assert found["margin"].tolist() == [1.0, -2.0, 3.0]
    assert found["loss"].tolist() == pytest.approx(F.cross_entropy(logits, labels, reduction="none").tolist())


def test_counts_by_hand() -> None:
    result = histograms("margin", {"clean": torch.tensor([-9.0, 0.0, 0.5, 1.0, 2.0])}, bins=4, limits=(0.0, 2.0))
    assert result.edges == (0.0, 0.5, 1.0, 1.5, 2.0)
    assert result.counts == {"clean": (2, 1, 1, 1)}
    assert result.rows()[0] == {"from": 0.0, "to": 0.5, "clean": 2}


def test_no_example_is_lost() -> None:
    series = {"clean": torch.randn(1000) * 5, "pgd": torch.randn(300) - 4}
    result = histograms("margin", series, bins=17)
    assert {name: sum(counts) for name, counts in result.counts.items()} == {"clean": 1000, "pgd": 300}
    assert len(result.edges) == 18
    together = torch.cat(list(series.values()))
    assert together.min() < result.edges[0] < result.edges[-1] < together.max()
    constant = histograms("loss", {"clean": torch.zeros(5)}, bins=2)
    assert sum(constant.counts["clean"]) == 5


def test_histograms_refuse() -> None:
    with pytest.raises(ValueError, match="at least one series"):
        histograms("loss", {})
    with pytest.raises(ValueError, match="Expected finite values of the loss"):
        histograms("loss", {"clean": torch.tensor([1.0, torch.inf])})


def test_confusion() -> None:
    labels, predictions = torch.tensor([0, 0, 0, 0, 1, 2]), torch.tensor([0, 1, 1, 2, 1, 0])
    result = confusion("fgsm 0.3", labels, predictions, ("a", "b", "c"))
    assert result.counts == ((1, 2, 1), (0, 1, 0), (1, 0, 0))
    figures = result.figures()
    assert figures["fgsm 0.3 from a to b"] == pytest.approx(200 / 3)
    assert figures["fgsm 0.3 from c to a"] == 100.0
    assert not any(name.startswith("fgsm 0.3 from b") for name in figures)  # none of b's attacks succeeded
    assert result.rows()[2] == {"attack": "fgsm 0.3", "true": "c", "a": 1, "b": 0, "c": 0}
    with pytest.raises(ValueError, match="Expected a prediction for each label, but got 5 for 6"):
        confusion("x", labels, predictions[:5], ("a", "b", "c"))
