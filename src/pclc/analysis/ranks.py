"""Where attacks land: the rank that the new class had among the classes of the clean image."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pclc.analysis.outputs import attacked, logits_of
from pclc.analysis.rows import Row
from pclc.attacks import Attack
from pclc.execution import Execution

RANKS = (2, 3, 4, 5)


@dataclass(frozen=True)
class RanksResult:
    """Misclassification ranks over a grid of eps.

    Attributes:
        attack: name.
        eps: (E) the grid, ascending.
        examples: images that are classified rightly without an attack, the only ones that count.
        new: (E) attacks that succeed at this eps and at no smaller one of the grid.
        counts: (E, 4) of these, how many land in the 2nd, 3rd, 4th and 5th most probable class of the clean image.
    """

    attack: str
    eps: tuple[float, ...]
    examples: int
    new: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]

    def shares(self) -> list[list[float | None]]:
        """`counts` in percent of `new`; None where nothing is new."""
        return [
            [100 * count / new if new else None for count in counts]
            for new, counts in zip(self.new, self.counts, strict=True)
        ]

    def rows(self) -> list[Row]:
        """A row for each eps."""
        return [
            {
                "attack": self.attack,
                "eps": eps,
                "examples": self.examples,
                "new": new,
                **{f"rank {rank}": count for rank, count in zip(RANKS, counts, strict=True)},
                **{f"rank {rank} %": share for rank, share in zip(RANKS, shares, strict=True)},
            }
            for eps, new, counts, shares in zip(self.eps, self.new, self.counts, self.shares(), strict=True)
        ]

    def figures(self) -> dict[str, float]:
        """What claims are about, in percent: "fgsm 0.01 rank 2", "fgsm 0.01 rank 3 to 5", and "fgsm all rank 2"."""
        figures = {}
        if sum(self.new):
            figures[f"{self.attack} all rank 2"] = 100 * sum(counts[0] for counts in self.counts) / sum(self.new)
        for eps, shares in zip(self.eps, self.shares(), strict=True):
            present = [share for share in shares if share is not None]
            if present:
                figures[f"{self.attack} {eps} rank 2"] = present[0]
                figures[f"{self.attack} {eps} rank 3 to 5"] = sum(present[1:])
        return figures


def rank_of(logits: Tensor, classes: Tensor) -> Tensor:
    """The place (N,) of a class in the order of the logits (N, K), from 1 on; among equals the lower class is first.

    Example:
        >>> rank_of(torch.tensor([[0.1, 0.7, 0.2], [0.1, 0.7, 0.2]]), torch.tensor([1, 0]))
        tensor([1, 3])
    """
    order = logits.argsort(dim=1, descending=True, stable=True)
    return (order == classes.unsqueeze(1)).int().argmax(1) + 1


def misclassification_ranks(
    attack: str, clean: Tensor, labels: Tensor, eps: Sequence[float], predictions: Tensor
) -> RanksResult:
    """Count where newly successful attacks land.

    An attack counts once, at the smallest eps of the grid at which it succeeds. Images that are wrong without an attack
    are left out: for them no class is the true one's nearest.

    Args:
        attack: its name.
        clean: (N, K) logits of the clean images.
        labels: (N,) true classes.
        eps: (E) the grid, ascending.
        predictions: (E, N) predicted classes under attack.

    Example:
        >>> clean = torch.tensor([[3.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
        >>> predictions = torch.tensor([[1, 0], [2, 2]])
        >>> result = misclassification_ranks("fgsm", clean, torch.tensor([0, 0]), (0.1, 0.2), predictions)
        >>> result.new, result.counts
        ((1, 1), ((1, 0, 0, 0), (0, 1, 0, 0)))
    """
    if list(eps) != sorted(set(eps)):
        raise ValueError(f"Expected `eps` to ascend, but got {list(eps)}.")
    if predictions.shape != (len(eps), len(labels)):
        raise ValueError(
            f"Expected `predictions` to be of shape {(len(eps), len(labels))}, but got {tuple(predictions.shape)}."
        )
    standing = clean.argmax(1) == labels
    examples = int(standing.sum())
    new, counts = [], []
    for predicted in predictions:
        fooled = standing & (predicted != labels)
        ranks = rank_of(clean[fooled], predicted[fooled])
        new.append(int(fooled.sum()))
        counts.append(tuple(int((ranks == rank).sum()) for rank in RANKS))
        standing = standing & ~fooled
    return RanksResult(attack, tuple(eps), examples, tuple(new), tuple(counts))


def ranks_over_eps(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    name: str,
    attacks: Sequence[tuple[float, Attack]],
    seed: int = 0,
    execution: Execution | None = None,
) -> RanksResult:
    """Attack over a grid of eps, and count where newly successful attacks land.

    Args:
        model: images to logits.
        x: (N, C, H, W) in [0, 1].
        y: (N,) true classes.
        name: of the attack.
        attacks: each with its eps, ascending.
        seed: of the attacks.
        execution: how it runs.
    """
    clean = logits_of(model, x, execution)
    predictions = [
        logits_of(model, attacked(model, attack, x, y, seed, execution), execution).argmax(1) for _, attack in attacks
    ]
    return misclassification_ranks(name, clean, y, [eps for eps, _ in attacks], torch.stack(predictions))
