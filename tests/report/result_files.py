"""Run directories made of result files alone: what a report may be given, without any training."""

import json
from pathlib import Path
from typing import Any

import torch

from pclc.analysis.inspection import inspect_model, save_inspection
from pclc.attacks import FGSM, parse_attack
from pclc.evaluation import Conditions, Evaluation, Outcome, Perturbations, save_evaluation
from pclc.training import RunDirectory, TrainConfig, paper_config

VERSIONS = {"pclc": "0.1.0", "torch": "2.13.0", "python": "3.11"}
ATTACKS = tuple(
    text
    for eps in (0.1, 0.2, 0.3)
    for text in (
        f'fgsm(eps={eps}, stop="never")',
        f'pgd(eps={eps}, alpha=0.01, steps=40, stop="never")',
        f'pgd(eps={eps}, alpha=0.01, steps=40, objective="margin")',
    )
)


def outcome(text: str, robust: torch.Tensor, **changes: Any) -> Outcome:
    attack = parse_attack(text)
    about = {"attack": str(attack), "norm": "Linf", "eps": attack.eps, "stop": attack.stop, "seed": 0}  # type: ignore[attr-defined]
    sizes = Perturbations(1, 0.1, 0.1, 1.0, 1.0)
    return Outcome(
        **{**about, "robust": robust, "perturbations": sizes, "forwards": 10, "backwards": 5, "seconds": 1.0, **changes}
    )


def evaluation(n: int, attacks: tuple[str, ...] = ATTACKS, name: str = "a model", seed: int = 0) -> Evaluation:
    """The first attack leaves all that is right, and each one after it breaks one example more."""
    draw = torch.Generator().manual_seed(seed)
    clean = torch.rand(n, generator=draw) < 0.95
    outcomes = tuple(outcome(text, clean & (torch.arange(n) >= i)) for i, text in enumerate(attacks))
    conditions = Conditions(name, "m" * 16, "mnist, test", "d" * 16, False, "cpu", "fp32", 1, "c" * 16, VERSIONS)
    return Evaluation(clean, torch.arange(n), outcomes, conditions)


def trained(path: Path, config: TrainConfig | None = None, dataset: str = "mnist", model: str = "lenet5") -> Path:
    """A finished training, of which nothing was trained."""
    run, config = RunDirectory(path), config or paper_config(dataset, loss="ce")
    network = {"name": model, "num_classes": 10, "in_channels": 1, "image_size": 28, "normalize": None}
    data = {"name": dataset, "examples": 60_000}
    run.begin({"train": config.as_dict(), "dataset": data, "model": network, "precision": "fp32"})
    epochs = range(1, 1 + config.epochs + config.warm_up_epochs)
    run.write_metrics(
        [{"epoch": i, "criterion": "ce", "lr": 0.01, "loss": 1 / i, "accuracy": 1 - 1 / (i + 1)} for i in epochs]
    )
    run.finish({"epochs": len(epochs), "seconds": 1.0, "setup_seconds": 0.0, "device": "cpu", "test_accuracy": None})
    return path


class Pixels(torch.nn.Module):
    """A network of ten classes with a last layer to look at."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last = torch.nn.Linear(784, 10)

    def features(self, x: torch.Tensor) -> torch.Tensor:
        return x.flatten(1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.features(x))


def inspected(path: Path, n: int, classes: tuple[str, ...] = tuple("0123456789")) -> Path:
    model, x = Pixels(), torch.rand(n, 1, 28, 28)
    grid = [FGSM(0.01), FGSM(0.02)]
    save_inspection(inspect_model(model, x, model(x).argmax(1), classes, FGSM(0.02), grid), path)
    return path


def measured(path: Path, n: int, **changes: Any) -> Path:
    save_evaluation(evaluation(n, **changes), path)
    return path


def audited(path: Path, text: str = "a reason", verdict: str = "refuted", eps: float = 0.2) -> Path:
    """An audit as `pclc audit` writes it."""
    share = {"value": 0.5, "n": 100, "low": 0.4, "high": 0.6}
    content = {
        "format": "pclc-audit",
        "version": 1,
        "verdict": verdict,
        "reason": text,
        "stated_claim": None,
        "claimed": share,
        "clean": share,
        "robust_accuracy": share,
        "overstatement": {"value": 0.3, "bound": 0.2, "confidence": 0.95, "points": 0.1},
        "lines": {"overstatement": 0.15, "points": 0.02, "alpha": 0.05},
        "gradients": [{"objective": text, "vanished": 0.1, "usable": True}],
        "checks": [
            {
                "name": text,
                "kind": "doubt",
                "state": "fired",
                "measured": text,
                "value": 1.0,
                "threshold": text,
                "source": text,
                "next_step": text,
            }
        ],
        "attacks": [],
        "witnesses": {"count": 3, "index": [1, 2, 3]},
        "conditions": {
            "norm": "Linf",
            "eps": eps,
            "mode": "quick",
            "escalated": False,
            "given": 100,
            "seed": 0,
            "random": False,
            "model": text,
            "model_hash": "m" * 16,
            "data": text,
            "data_hash": "d" * 16,
            "device": "cpu",
            "precision": "fp32",
            "versions": VERSIONS,
        },
        "seconds": 1.0,
    }
    (path / "audit.json").write_text(json.dumps(content))
    return path
