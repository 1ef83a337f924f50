"""Embeddings: the same every time, and only attacks that succeed are in them."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pclc.analysis import embed, embed_model
from pclc.analysis.embedding import EmbeddingResult, overlap
from pclc.attacks import FGSM

CLASSES = ("a", "b", "c")


class Toy(nn.Module):
    """Logits are the first three pixels; features are all of them."""

    def features(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.features(x)[:, :3]


def images(n: int = 60) -> tuple[Tensor, Tensor]:
    y = torch.arange(n) % 3
    x = 0.1 * torch.rand(n, 1, 3, 3)
    x.flatten(1)[torch.arange(n), y] += 0.4
    x.flatten(1)[0] = torch.tensor([0.1, 0.8, 0, 0, 0, 0, 0, 0, 0])  # the first is wrong without an attack
    return x, y


def embedded(eps: float) -> EmbeddingResult:
    x, y = images()
    return embed_model(Toy(), x, y, CLASSES, f"fgsm {eps}", FGSM(eps, stop="never"))


def test_clean_images_alone() -> None:
    x, y = images()
    result = embed_model(Toy(), x, y, CLASSES)
    assert result.points.shape == (60, 2)
    assert not result.successful_attack.any()
    assert result.figures() == {"clean overlap": result.overlap}
    assert result.overlap < 5  # three clusters, one image among the wrong ones


def test_only_new_successes_are_added() -> None:
    none, all_but_one = embedded(0.05), embedded(0.3)
    assert len(none.points) == 60
    assert len(all_but_one.points) == 60 + 59
    fooled = all_but_one.successful_attack
    assert (all_but_one.predictions[fooled] != all_but_one.labels[fooled]).all()
    assert fooled.tolist() == [False] * 60 + [True] * 59
    kinds = [row["kind"] for row in all_but_one.rows()]
    assert kinds == ["clean"] * 60 + ["successful attack"] * 59
    assert all_but_one.rows()[0]["class"] == "a"
    assert all_but_one.rows()[0]["predicted"] == "b"


def test_the_same_every_time() -> None:
    features = np.random.default_rng(0).normal(size=(40, 5))
    assert (embed(features, seed=1) == embed(features, seed=1)).all()
    before = np.random.get_state()[1][0], torch.initial_seed()  # noqa: NPY002
    embed(features, seed=1)
    assert (np.random.get_state()[1][0], torch.initial_seed()) == before  # noqa: NPY002


def test_perplexity_counts_up_to_what_so_few_points_allow() -> None:
    features = np.random.default_rng(0).normal(size=(30, 5))
    assert (embed(features, perplexity=5.0) != embed(features)).any()
    assert (embed(features, perplexity=50.0) == embed(features)).all(), "both more than a third of the points"


def test_overlap_by_hand() -> None:
    points = np.array([[0.0, 0], [0, 1], [1, 0], [9, 9], [9, 8], [8, 9]])
    assert overlap(points, np.array([0, 0, 0, 1, 1, 1]), neighbours=2) == 0.0
    assert overlap(points, np.array([1, 0, 0, 1, 1, 1]), neighbours=2) == pytest.approx(100 / 6)


def test_refusals() -> None:
    x, y = images(6)
    with pytest.raises(ValueError, match="Expected `model` to have `features"):
        embed_model(nn.Flatten(), x, y, CLASSES)
    with pytest.raises(ValueError, match="at least 4 points"):
        embed(np.zeros((3, 2)))
