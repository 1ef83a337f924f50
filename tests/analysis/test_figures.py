"""Figures write what they show, as pictures and as numbers, the same every time."""

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from pclc.analysis import (
    EmbeddingResult,
    RanksResult,
    confusion,
    gap_summary,
    histograms,
)
from pclc.analysis.figures import plot_confusion, plot_embeddings, plot_gaps, plot_histograms, plot_ranks

RANKS = RanksResult("fgsm", (0.1, 0.2), 50, (4, 0), ((3, 1, 0, 0), (0, 0, 0, 0)))
GAPS = [gap_summary(name, torch.eye(3)[[0, 1, 2]] * 4, torch.tensor([0, 1, 1])) for name in ("clean", "fgsm 0.1")]
HISTOGRAM = histograms("margin", {"clean": torch.arange(9.0), "fgsm": torch.arange(9.0) - 4}, bins=3)
CONFUSION = confusion("fgsm", torch.tensor([0, 1, 1]), torch.tensor([1, 1, 0]), ("a", "b"))


def embedding(classes: tuple[str, ...] = ("a", "b")) -> EmbeddingResult:
    points = np.arange(12.0).reshape(6, 2)
    labels, flags = np.array([0, 1, 0, 1, 0, 1]), np.arange(6) > 3
    return EmbeddingResult("fgsm", points, labels, labels, flags, classes, 12.5)


DRAW: dict[str, Callable[[Path], None]] = {
    "ranks": lambda stem: plot_ranks({"CE: FGSM": RANKS, "CE: MIM": RANKS, "PC-LC: FGSM": RANKS}, stem),
    "gaps": lambda stem: plot_gaps({"ce": GAPS, "pc-lc": GAPS}, stem),
    "embeddings": lambda stem: plot_embeddings({"CE": embedding(), "PC-LC": embedding()}, stem),
    "histograms": lambda stem: plot_histograms({"CE": HISTOGRAM}, stem),
    "confusion": lambda stem: plot_confusion({"CE": CONFUSION}, stem),
}


@pytest.mark.parametrize("name", DRAW)
def test_files(name: str, tmp_path: Path) -> None:
    for folder in ("one", "two"):
        DRAW[name](tmp_path / folder / "figure 0.1")
    one, two = (sorted((tmp_path / folder).iterdir()) for folder in ("one", "two"))
    assert [path.name for path in one] == ["figure 0.1.csv", "figure 0.1.png", "figure 0.1.svg"]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    assert one[1].read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in one[2].read_bytes()
    assert one[1].stat().st_size > 5_000


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_numbers(tmp_path: Path) -> None:
    DRAW["ranks"](tmp_path / "ranks")
    rows = table(tmp_path / "ranks.csv")
    assert len(rows) == 6
    assert (rows[0]["panel"], rows[0]["eps"], rows[0]["new"], rows[0]["rank 2 %"]) == ("CE: FGSM", "0.1", "4", "75.0")
    assert rows[1]["rank 2 %"] == ""  # nothing new: no share
    DRAW["gaps"](tmp_path / "gaps")
    gaps = table(tmp_path / "gaps.csv")
    assert [(row["model"], row["name"]) for row in gaps][:2] == [("ce", "clean"), ("ce", "fgsm 0.1")]
    assert float(gaps[0]["mean"]) == GAPS[0].mean
    DRAW["embeddings"](tmp_path / "tsne")
    assert [row["kind"] for row in table(tmp_path / "tsne.csv")][3:6] == ["clean", *["successful attack"] * 2]
    DRAW["histograms"](tmp_path / "histograms")
    counted = table(tmp_path / "histograms.csv")
    assert sum(int(row["fgsm"]) for row in counted) == 9
    DRAW["confusion"](tmp_path / "confusion")
    assert table(tmp_path / "confusion.csv")[1] == {"panel": "CE", "attack": "fgsm", "true": "b", "a": "1", "b": "1"}


def test_refusals(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the same classes, at most 10"):
        plot_embeddings({"one": embedding(), "two": embedding(("x", "y"))}, tmp_path / "x")
    with pytest.raises(ValueError, match=r"Expected 'two' to have results for clean, fgsm 0\.1"):
        plot_gaps({"one": GAPS, "two": GAPS[:1]}, tmp_path / "x")
    one = torch.zeros(1, dtype=torch.int64)
    many = confusion("x", one, one, tuple("abcdefghijklmnopqrstu"))
    with pytest.raises(ValueError, match="at most 20 classes, which can still be read, but got 21"):
        plot_confusion({"one": many}, tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_numbers_need_no_extra_and_figures_name_theirs() -> None:
    program = """
import sys
for name in ("matplotlib", "sklearn", "scipy"):
    sys.modules[name] = None
import torch
from pclc.analysis import gap_summary, judge
from pclc.analysis.figures import plot_gaps
gap = gap_summary("clean", torch.eye(3), torch.tensor([0, 1, 2]))
judge(1.0, [1.0, 1.1])
plot_gaps({"one": [gap]}, "x")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Drawing figures needs matplotlib: pip install 'pclc[report]'" in done.stderr
