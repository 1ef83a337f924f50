"""Fixtures of the tests of losses."""

import pytest
from torch import Tensor

from pclc.losses import pc_op
from pclc.losses.pc_rows import Terms


@pytest.fixture(params=["dense", "in blocks"])
def each_path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """PC-LC as it is computed for a small mean on the CPU, and as it is for anything else."""

    def small(logits: Tensor, _: Terms) -> bool:
        return request.param == "dense" and logits.numel() <= pc_op.SMALL

    monkeypatch.setattr(pc_op, "_small", small)
