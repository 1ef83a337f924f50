"""The demo: its figures add up, and its sentences follow from them."""

import json
import subprocess
import sys
from pathlib import Path

from pclc.experiments.demo import DemoResult


def result(pgd: float, worst: float) -> DemoResult:
    columns = {"clean": 99.0, "FGSM": 60.0, "PGD": pgd, "margin": worst, "worst case": worst}
    return DemoResult("digits", 0.2, 360, {"ce": {**columns, "PGD": 30.0, "worst case": 1.0}, "pc-lc": columns})


def test_sentences_follow_the_figures() -> None:
    masked = result(50.0, 5.0).sentences()
    assert "PC-LC keeps 60.0 and 50.0 %, cross-entropy 60.0 and 30.0 %" in masked[0]
    assert "PC-LC keeps 5.0 % and cross-entropy 1.0 %" in masked[1]
    assert masked[2].startswith("So 45.0 of the points that PGD left PC-LC, and 29.0 of cross-entropy's, were how far")
    assert "does not show the difference" in result(20.0, 19.0).sentences()[2]


def test_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pclc", "demo", "--json", "--device", "cpu"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    shown = json.loads(done.stdout)
    assert shown["examples"] == 360
    for columns in shown["accuracy"].values():
        assert columns["clean"] > 90
        attacked = [columns[name] for name in ("FGSM", "PGD", "margin")]
        assert columns["worst case"] <= min(attacked)
        assert max(attacked) < columns["clean"]
    assert len(shown["sentences"]) == 3
    assert (tmp_path / "runs" / "demo" / "digits" / "pc-lc" / "model.safetensors").exists()
