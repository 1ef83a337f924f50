"""An attack beside that of other libraries: only where it is the same one, and on the same model."""

import pytest
import torch

import pclc
from pclc.attacks import parse_attack
from pclc.bench.attack import bench_attack


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("pgd(eps=0.1, alpha=0.1, steps=1)", True),
        ('pgd(eps=0.1, alpha=0.1, steps=1, stop="never")', True),
        ('pgd(eps=0.1, alpha=0.1, steps=1, norm="L2")', False),
        ("pgd(eps=0.1, alpha=0.1, steps=1, restarts=2)", False),
        ('autoattack(eps=0.1, version="custom", attacks=(noise(eps=0.1),))', False),
    ],
)
def test_a_peer_stands_beside_the_same_attack_only(text: str, compared: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    peers = {"a peer": lambda x, y: x}
    for function in ("_pgd_peers", "_autoattack_peers"):
        monkeypatch.setattr(f"pclc.bench.attack.{function}", lambda *_: peers)
    x, y = torch.rand(2, 1, 8, 8), torch.zeros(2, dtype=torch.long)
    found = bench_attack(pclc.create_model("lenet8"), x, y, parse_attack(text), "noise", rounds=1)
    assert ("a peer" in {row["variant"] for row in found.rows}) == compared


def test_a_peer_that_leaves_the_model_in_train_mode_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dropout at a rate of one would leave nothing of any variant, and of the peer itself."""
    x, y = torch.rand(20, 1, 2, 2), torch.zeros(20, dtype=torch.long)
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Dropout(1.0), torch.nn.Linear(4, 2))
    model[2].weight.data, model[2].bias.data = torch.tensor([[9.0] * 4, [0.0] * 4]), torch.tensor([0.0, 0.1])

    def careless(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        model.train()
        return x

    monkeypatch.setattr("pclc.bench.attack._pgd_peers", lambda *_: {"a peer": careless})
    found = bench_attack(model, x, y, parse_attack("pgd(eps=1e-6, alpha=1e-6, steps=1)"), "noise", rounds=4)
    assert {row["variant"]: row["accuracy %"] for row in found.rows} == {
        'pclc, stop="never"': 100, 'pclc, stop="success"': 100, "a peer": 100,
    }  # fmt: skip
