"""What trained models keep under attack, with intervals: the figures that stand beside a recipe."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pclc
from pclc.attacks import Attack, parse_attack
from pclc.bench.result import BenchResult, conditions
from pclc.bench.training_words import training_words
from pclc.data.dataset import Dataset
from pclc.execution import Execution


def bench_robustness(
    runs: Sequence[Path],
    test_sets: Sequence[Dataset],
    attacks: Sequence[str],
    execution: Execution,
    examples: int | None = None,
    report: Callable[[dict[str, Any]], None] = lambda row: None,
) -> BenchResult:
    """Evaluate each run directory's model on its test set under all attacks; one row a model and attack."""
    rows: list[dict[str, Any]] = []
    parsed: list[Attack | str] = [parse_attack(text) for text in attacks]
    for run, test in zip(runs, test_sets, strict=True):
        config = pclc.RunDirectory(run).config
        device = execution.torch_device
        x = (test.images[:examples].float() / 255).to(device)
        y = test.labels[:examples].to(device)
        found = pclc.evaluate(pclc.load_model(run, str(device)), x, y, parsed, execution=execution)
        case = {
            "data": test.name,
            "model": config["model"]["name"],
            "training": training_words(config["train"]),
            "n": len(x),
        }
        accuracies = {"clean": found.clean_accuracy} | {outcome.attack: outcome.accuracy for outcome in found.outcomes}
        accuracies["worst case"] = found.robust_accuracy
        for attack, accuracy in accuracies.items():
            share = {"accuracy %": accuracy.value, "low": accuracy.low, "high": accuracy.high}
            rows.append({**case, "attack": attack, **{column: 100 * value for column, value in share.items()}})
            report(rows[-1])
    return BenchResult(
        benchmark="robustness",
        command="pclc bench robustness",
        notes=(
            "Accuracy left, with its exact 95 % interval over test images (one training seed). The worst case counts "
            "images that neither the model itself nor any attack gets wrong.",
        ),
        conditions=conditions(execution.torch_device),
        rows=tuple(rows),
    )
