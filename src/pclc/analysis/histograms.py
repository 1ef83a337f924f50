"""How losses and margins are spread over examples, clean and under attack."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor
from torch.nn import functional as F

from pclc.analysis.rows import Row


@dataclass(frozen=True)
class HistogramResult:
    """Histograms of several series over the same bins.

    Attributes:
        quantity: what is counted.
        edges: (B + 1) of the bins.
        counts: (B) for each series; the first and the last bin hold what lies outside too.
    """

    quantity: str
    edges: tuple[float, ...]
    counts: Mapping[str, tuple[int, ...]]

    def rows(self) -> list[Row]:
        """A row for each bin."""
        return [
            {"from": low, "to": high, **{name: counts[i] for name, counts in self.counts.items()}}
            for i, (low, high) in enumerate(pairwise(self.edges))
        ]


def loss_and_margin(logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
    """Cross-entropy and the margin between the true logit and the largest false one, for each example, in float64.

    Example:
        >>> loss_and_margin(torch.tensor([[2.0, 0.0, 1.0]]), torch.tensor([0]))["margin"]
        tensor([1.], dtype=torch.float64)
    """
    logits = logits.double()
    true = labels.unsqueeze(1)
    margin = logits.gather(1, true) - logits.scatter(1, true, -torch.inf).amax(1, keepdim=True)
    return {"loss": F.cross_entropy(logits, labels, reduction="none"), "margin": margin.squeeze(1)}


def histograms(
    quantity: str, series: Mapping[str, Tensor], bins: int = 40, limits: tuple[float, float] | None = None
) -> HistogramResult:
    """Count several series in common bins.

    Args:
        quantity: what it is, for the axis.
        series: values by name.
        bins: how many.
        limits: of the bins; None: the 0.5 % and 99.5 % quantiles of all series together. What lies outside is counted
            in the first and in the last bin, so that no example is lost.

    Example:
        >>> histograms("margin", {"clean": torch.tensor([0.0, 0.4, 1.0, 7.0])}, bins=2, limits=(0, 1)).counts
        {'clean': (2, 2)}
    """
    if not series or any(not len(values) for values in series.values()):
        raise ValueError("Expected at least one series with at least one value each, but got none.")
    together = torch.cat([values.double().cpu() for values in series.values()])
    if not together.isfinite().all():
        raise ValueError(f"Expected finite values of the {quantity}, but got some that are not.")
    if limits is None:
        low, high = (float(together.quantile(share)) for share in (0.005, 0.995))
        limits = (low, high) if low < high else (low - 0.5, low + 0.5)
    edges = torch.linspace(limits[0], limits[1], bins + 1, dtype=torch.float64)
    counts = {}
    for name, values in series.items():
        place = torch.bucketize(values.double().cpu(), edges[1:-1], right=True)
        counts[name] = tuple(torch.bincount(place, minlength=bins).tolist())
    return HistogramResult(quantity, tuple(edges.tolist()), counts)
