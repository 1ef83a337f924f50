"""t-SNE of the penultimate layer: clean images, and the attacks that succeed."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from pclc.analysis.outputs import attacked, features_of, logits_of
from pclc.analysis.rows import Row
from pclc.attacks import Attack
from pclc.execution import Execution
from pclc.extras import needs_extra

_NEIGHBOURS = 10


@dataclass(frozen=True, eq=False)
class EmbeddingResult:
    """Points in the plane.

    Attributes:
        name: of the attack, or "clean" without one.
        points: (M, 2), the clean images first.
        labels: (M,) true classes.
        predictions: (M,) predicted classes.
        successful_attack: (M,) flags; the others are clean images.
        classes: names.
        overlap: share in percent of the clean images with another class in the majority among the ten nearest clean
            points of the plane.
    """

    name: str
    points: npt.NDArray[np.float64]
    labels: npt.NDArray[np.int64]
    predictions: npt.NDArray[np.int64]
    successful_attack: npt.NDArray[np.bool_]
    classes: tuple[str, ...]
    overlap: float

    def rows(self) -> list[Row]:
        """A row for each point."""
        return [
            {
                "x": float(x),
                "y": float(y),
                "class": self.classes[label],
                "predicted": self.classes[predicted],
                "kind": "successful attack" if attack else "clean",
            }
            for (x, y), label, predicted, attack in zip(
                self.points, self.labels, self.predictions, self.successful_attack, strict=True
            )
        ]

    def figures(self) -> dict[str, float]:
        """What claims are about: "clean overlap", or "fgsm 0.3 overlap" where attacks are in the plane too."""
        return {f"{self.name} overlap": self.overlap}


def embed(features: npt.NDArray[np.float64], seed: int = 0, perplexity: float = 30.0) -> npt.NDArray[np.float64]:
    """t-SNE of (M, F) features, from their first two principal components: (M, 2), the same for the same input."""
    with needs_extra("report", "t-SNE"):
        from sklearn.manifold import TSNE
    if len(features) < 4:
        raise ValueError(f"Expected at least 4 points for t-SNE, but got {len(features)}.")
    tsne = TSNE(init="pca", perplexity=min(perplexity, (len(features) - 1) / 3), random_state=seed, n_jobs=1)
    points: npt.NDArray[np.float64] = tsne.fit_transform(features).astype(np.float64)
    return points


def overlap(points: npt.NDArray[np.float64], labels: npt.NDArray[np.int64], neighbours: int = _NEIGHBOURS) -> float:
    """The share in percent of points with more than half of their nearest neighbours in other classes.

    Example:
        >>> points = np.array([[0.0, 0], [0, 1], [1, 0], [9, 9], [9, 8], [8, 9]])
        >>> overlap(points, np.array([0, 0, 0, 1, 1, 1]), neighbours=2), overlap(points, np.arange(6), neighbours=2)
        (0.0, 100.0)
    """
    mixed = 0
    neighbours = min(neighbours, len(points) - 1)
    for i, point in enumerate(points):
        distances = np.square(points - point).sum(1)
        distances[i] = np.inf
        nearest = np.argpartition(distances, neighbours - 1)[:neighbours]
        mixed += np.mean(labels[nearest] != labels[i]) > 0.5
    return float(100 * mixed / len(points))


def embed_model(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    classes: tuple[str, ...],
    name: str = "clean",
    attack: Attack | None = None,
    seed: int = 0,
    execution: Execution | None = None,
) -> EmbeddingResult:
    """Embed clean images together with the successful attacks on them.

    A successful attack is an image that is classified rightly, and wrongly after the attack.

    Args:
        model: with `features(x)`.
        x: (N, C, H, W) in [0, 1].
        y: (N,) true classes.
        classes: their names.
        name: of the attack.
        attack: None: clean images only.
        seed: of the attack and of t-SNE.
        execution: how it runs.
    """
    predictions = logits_of(model, x, execution).argmax(1)
    images, labels, predicted = [x], [y], [predictions]
    if attack is not None:
        x_adv = attacked(model, attack, x, y, seed, execution)
        after = logits_of(model, x_adv, execution).argmax(1)
        fooled = (predictions == y) & (after != y)
        images, labels, predicted = [x, x_adv[fooled]], [y, y[fooled]], [predictions, after[fooled]]
    features = features_of(model, torch.cat(images), execution).flatten(1).double().cpu().numpy()
    points = embed(features, seed)
    clean_labels = y.cpu().numpy()
    return EmbeddingResult(
        name=name,
        points=points,
        labels=torch.cat(labels).cpu().numpy(),
        predictions=torch.cat(predicted).cpu().numpy(),
        successful_attack=np.arange(len(points)) >= len(x),
        classes=classes,
        overlap=overlap(points[: len(x)], clean_labels),
    )
