"""Misclassification ranks on logits made by hand."""

import pytest
import torch
from torch import Tensor, nn

from pclc.analysis import misclassification_ranks, rank_of, ranks_over_eps
from pclc.attacks import FGSM
from pclc.execution import Execution

CLEAN = torch.tensor(
    [
        [5.0, 4.0, 3.0, 2.0, 1.0, 0.0],
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        [5.0, 4.0, 3.0, 2.0, 1.0, 0.0],
        [5.0, 4.0, 3.0, 2.0, 1.0, 0.0],
        [5.0, 4.0, 3.0, 2.0, 1.0, 0.0],  # wrong from the start: its label is 1
    ]
)
LABELS = torch.tensor([0, 5, 0, 0, 1])


def test_rank_of() -> None:
    assert rank_of(CLEAN[:2], torch.tensor([0, 0])).tolist() == [1, 6]
    assert rank_of(CLEAN[:2], torch.tensor([4, 4])).tolist() == [5, 2]
    equal = torch.zeros(3, 4)
    assert rank_of(equal, torch.tensor([0, 2, 3])).tolist() == [1, 3, 4]


def test_every_rank_is_taken_once() -> None:
    logits = torch.randn(50, 7)
    ranks = torch.stack([rank_of(logits, torch.full((50,), k)) for k in range(7)])
    assert (ranks.sort(0).values == torch.arange(1, 8).unsqueeze(1)).all()
    assert (rank_of(logits, logits.argmax(1)) == 1).all()


def test_hand_made() -> None:
    predictions = torch.tensor(
        [
            [1, 5, 0, 0, 0],  # the first lands in its second class; the last is no success, it was wrong before
            [0, 3, 0, 5, 2],  # the first comes back; the second lands in its third, the fourth in its sixth class
            [2, 3, 4, 1, 3],  # the first and the fourth are not new; the third lands in its fifth class
        ]
    )
    result = misclassification_ranks("fgsm", CLEAN, LABELS, (0.1, 0.2, 0.3), predictions)
    assert result.examples == 4
    assert result.new == (1, 2, 1)
    assert result.counts == ((1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 0, 1))
    assert result.shares() == [[100.0, 0.0, 0.0, 0.0], [0.0, 50.0, 0.0, 0.0], [0.0, 0.0, 0.0, 100.0]]
    assert result.figures() == {
        "fgsm all rank 2": 25.0,
        "fgsm 0.1 rank 2": 100.0,
        "fgsm 0.1 rank 3 to 5": 0.0,
        "fgsm 0.2 rank 2": 0.0,
        "fgsm 0.2 rank 3 to 5": 50.0,
        "fgsm 0.3 rank 2": 0.0,
        "fgsm 0.3 rank 3 to 5": 100.0,
    }
    assert result.rows()[1] == {
        "attack": "fgsm",
        "eps": 0.2,
        "examples": 4,
        "new": 2,
        "rank 2": 0,
        "rank 3": 1,
        "rank 4": 0,
        "rank 5": 0,
        "rank 2 %": 0.0,
        "rank 3 %": 50.0,
        "rank 4 %": 0.0,
        "rank 5 %": 0.0,
    }


def test_where_nothing_is_new_there_is_no_share() -> None:
    result = misclassification_ranks("fgsm", CLEAN, LABELS, (0.1,), CLEAN.argmax(1).unsqueeze(0))
    assert result.shares() == [[None] * 4]
    assert result.figures() == {}


def test_refusals() -> None:
    predictions = torch.zeros(2, 5, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"Expected `eps` to ascend, but got \[0.2, 0.1\]"):
        misclassification_ranks("fgsm", CLEAN, LABELS, (0.2, 0.1), predictions)
    with pytest.raises(ValueError, match=r"of shape \(1, 5\), but got \(2, 5\)"):
        misclassification_ranks("fgsm", CLEAN, LABELS, (0.1,), predictions)


class Scores(nn.Module):
    """The first three pixels are the logits."""

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)[:, :3]


def test_on_a_model_with_a_known_answer() -> None:
    """A step of eps takes eps from the true logit and gives it to the others: the second class wins from gap / 2 on."""
    x = torch.tensor([[0.75, 0.5, 0.25], [0.625, 0.25, 0.5], [0.9, 0.1, 0.2]]).reshape(3, 1, 1, 3)
    y = torch.tensor([0, 0, 0])
    attacks = [(eps, FGSM(eps, stop="never")) for eps in (0.05, 0.1, 0.2, 0.3)]
    result = ranks_over_eps(Scores(), x, y, "fgsm", attacks)
    assert result.new == (0, 1, 1, 0)
    assert result.counts == ((0, 0, 0, 0), (1, 0, 0, 0), (1, 0, 0, 0), (0, 0, 0, 0))
    assert result == ranks_over_eps(Scores(), x, y, "fgsm", attacks, execution=Execution(device="cpu", batch_size=2))
