"""The probability gap: how far the true class is ahead of the most probable false one."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from pclc.analysis.outputs import attacked, logits_of
from pclc.analysis.rows import Row
from pclc.attacks import Attack
from pclc.execution import Execution


@dataclass(frozen=True)
class GapResult:
    """Gaps of a set of images.

    Attributes:
        name: "clean", or the attack.
        examples: how many.
        mean: over all images, wrong ones included, as the paper has it.
        standard_error: of the mean.
        correct: share of images with a gap above 0, which are those classified rightly.
        mean_of_correct: over those alone; None without any.
    """

    name: str
    examples: int
    mean: float
    standard_error: float
    correct: float
    mean_of_correct: float | None

    def row(self) -> Row:
        """For a table."""
        return dict(vars(self))


def probability_gap(logits: Tensor, labels: Tensor) -> Tensor:
    r"""$f_y - \max_{k \neq y} f_k$ for each example, in float64: (N, K) logits and (N,) labels to (N,) in [-1, 1].

    Example:
        >>> import torch
        >>> logits = torch.tensor([[0.5, 0.3, 0.2], [0.5, 0.3, 0.2]]).log()
        >>> [f"{gap:.1f}" for gap in probability_gap(logits, torch.tensor([0, 1]))]
        ['0.2', '-0.2']
    """
    probabilities = logits.double().softmax(1)
    true = labels.unsqueeze(1)
    return (probabilities.gather(1, true) - probabilities.scatter(1, true, -1).amax(1, keepdim=True)).squeeze(1)


def gap_summary(name: str, logits: Tensor, labels: Tensor) -> GapResult:
    """The gaps of one set of images."""
    gaps = probability_gap(logits, labels)
    if not len(gaps):
        raise ValueError("Expected at least one example, but got none.")
    right = gaps > 0
    return GapResult(
        name=name,
        examples=len(gaps),
        mean=float(gaps.mean()),
        standard_error=float(gaps.std() / len(gaps) ** 0.5) if len(gaps) > 1 else 0.0,
        correct=float(right.double().mean()),
        mean_of_correct=float(gaps[right].mean()) if right.any() else None,
    )


def mean_gaps(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    attacks: Mapping[str, Attack] | None = None,
    seed: int = 0,
    execution: Execution | None = None,
) -> tuple[GapResult, ...]:
    """The gaps on clean images, and under each attack.

    Args:
        model: images to logits.
        x: (N, C, H, W) in [0, 1].
        y: (N,) true classes.
        attacks: by name.
        seed: of the attacks.
        execution: how it runs.

    Example:
        >>> import torch
        >>> x, y = torch.tensor([[0.75, 0.25]]), torch.tensor([0])
        >>> [result.name for result in mean_gaps(nn.Identity(), x, y)]
        ['clean']
    """
    results = [gap_summary("clean", logits_of(model, x, execution), y)]
    for name, attack in (attacks or {}).items():
        x_adv = attacked(model, attack, x, y, seed, execution)
        results.append(gap_summary(name, logits_of(model, x_adv, execution), y))
    return tuple(results)
