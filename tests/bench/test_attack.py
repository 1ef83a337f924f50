"""An attack beside that of other libraries: only where it is the same one."""

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
