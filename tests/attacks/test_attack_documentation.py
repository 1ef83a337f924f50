"""The examples in docs/attacks.md run, and its tables know every attack and objective."""

import re
import warnings
from pathlib import Path

import pytest
import torch

from pclc.attacks import attack_names, objective_names

TEXT = (Path(__file__).parents[2] / "docs" / "attacks.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)
OURS = [
    block for block in BLOCKS if not re.search(r"^(?:import|from) (?:foolbox|torchattacks|art)", block, re.MULTILINE)
]


def check(names):
    x, x_adv = names["x"], names["x_adv"]
    assert x_adv.shape == x.shape
    assert x_adv.dtype == x.dtype
    assert 0 < (x_adv - x).abs().max() <= 8 / 255 + 1e-6


@pytest.fixture
def names():
    names = {}
    exec(OURS[0], names)
    return names


@pytest.mark.filterwarnings("ignore::pclc.attacks.AttackWarning")
def test_examples(names):
    check(names)
    assert len(OURS) == 6
    for block in OURS[1:]:
        exec(block, names)


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", ["foolbox", "torchattacks", "art"])
def test_examples_with_other_libraries(library, names):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(library, reason="needs the peers: make peers")
    (block,) = [block for block in BLOCKS if re.search(rf"^(?:import|from) {library}\b", block, re.MULTILINE)]
    exec(block, names)
    check(names)
    assert isinstance(names["x_adv"], torch.Tensor)


def test_tables_are_complete():
    for name in attack_names():
        assert f"| `{name}` `" in TEXT
    for name in (
        "ce",
        "margin",
        "dlr",
        "dlr-targeted",
        "probability-margin",
        "pc-lc",
        "pc",
        "gce",
        "complement-entropy",
    ):
        assert name in objective_names()
        assert f"`{name}`" in TEXT
