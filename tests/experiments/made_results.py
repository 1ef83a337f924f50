"""Results of cells that were never run, to see what is made of them, and a place for pages."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pclc.evaluation.result import NO_EVIDENCE
from pclc.experiments.experiment import Cell
from pclc.experiments.store import Store


def content(cell: Cell, accuracies: dict[str, float]) -> dict[str, Any]:
    """What a cell would give with these accuracies in percent of 1,000 images, and 0 under every other attack."""
    correct = {attack.name: round(10 * accuracies.get(attack.name, 0.0)) for attack in cell.attacks}
    found = {"verdict": "not refuted", "reason": "Too little was found.", "clean": {"n": 1000}}
    audited = {"audit": found} if cell.audit else {}
    return {
        **audited,
        "n": 1000,
        "clean": round(10 * accuracies["clean"]),
        "attacks": [
            {
                "attack": attack.text,
                "transfer": attack.transfer,
                "correct": correct[attack.name],
                "seconds": 2.0,
                "zero_gradient_share": 0.25 if attack.name == "mim 0.1" else 0.0,
            }
            for attack in cell.attacks
        ],
        "worst_case": [{"norm": "Linf", "eps": 0.1, "correct": 5}, {"norm": None, "eps": None, "correct": 0}],
        "training": {"device": "cpu", "precision": "bf16", "epochs": 100, "seconds": 50.0},
        "seconds": {"analyses": 1.0, "audit": 4.0},
        "conditions": {"device": "cpu", "precision": "fp32", "versions": {"torch": "2", "pclc": "0"}},
        "code": "12345678",
        "warnings": ["something was seen", f"25.0% of the gradients of mim {NO_EVIDENCE}"],
    }


def fill(store: Store, cells: list[Cell], figures: Callable[[Cell], dict[str, float]]) -> None:
    for cell in cells:
        store.save(cell, content(cell, figures(cell)), {"analyses": []})


def docs_folder(tmp_path: Path) -> Path:
    """The hand-written pages, as they stand, with the README beside them."""
    docs, root = tmp_path / "docs", Path(__file__).parents[2]
    docs.mkdir()
    for name in ("README.md", "docs/reproduction.md", "docs/results.md"):
        (tmp_path / name).write_bytes((root / name).read_bytes())
    (docs / "results.md").write_text((docs / "results.md").read_text().replace("\nadversarial-training\n", "\n"))
    return docs
