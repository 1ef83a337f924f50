"""Clean test accuracy of the paper's protocol, over seeds and precisions, beside the published figure."""

from collections.abc import Callable, Sequence
from itertools import product
from statistics import mean, stdev
from typing import Any

import torch

import pclc
from pclc.bench.result import BenchResult, conditions
from pclc.data.dataset import Dataset
from pclc.execution import Execution
from pclc.experiments.published import load_published
from pclc.training import PRESETS, TrainConfig, TrainResult


def bench_accuracy(
    train_set: Dataset,
    test_set: Dataset,
    configs: Sequence[TrainConfig],
    executions: Sequence[Execution],
    model_name: str | None = None,
    report: Callable[[BenchResult], None] = lambda result: None,
) -> BenchResult:
    """Train every configuration in every execution; `report` sees what is there after each of them.

    There is at least one of both, and `configs` differ in their seed alone.
    """
    name, config = model_name or PRESETS[train_set.name].model, configs[0]
    published = _published(train_set.name, name, config)
    runs: dict[str, list[TrainResult]] = {}
    executions = list({execution.resolved_precision: execution for execution in executions}.values())  # each once

    def row(precision: str, found: Sequence[TrainResult]) -> dict[str, Any]:
        values = [100 * share for run in found if (share := run.test_accuracy) is not None]  # all have one
        return {
            "data": train_set.name,
            "model": name,
            "loss": config.loss,
            "epochs": f"{config.warm_up_epochs} + {config.epochs}",
            "precision": precision,
            "seeds": len(values),
            "accuracy %": ", ".join(f"{value:.2f}" for value in values),
            "mean": mean(values),
            "std": stdev(values) if len(values) > 1 else None,
            "published": published,
            "seconds a run": mean(run.seconds for run in found),
        }

    def result() -> BenchResult:
        rows = [row(precision, found) for precision, found in runs.items()]
        return BenchResult(
            benchmark="accuracy",
            command=f"pclc bench accuracy {train_set.name}",
            notes=(
                f"Clean accuracy of the last epoch's model on all {len(test_set):,} test images, decided in IEEE "
                f"float32, seeds from {config.seed} on; published is Table 1 of the paper. Seconds are those of the "
                "epochs, without set-up.",
            ),
            conditions=conditions(executions[0].torch_device),
            rows=tuple(rows),
        )

    for each, execution in product(configs, executions):
        torch.manual_seed(each.seed)
        channels, size = train_set.images.shape[1:3]
        model = pclc.create_model(name, len(train_set.classes), in_channels=channels, image_size=size)
        trained = pclc.train(model, train_set, each, execution=execution, test=test_set)
        runs.setdefault(execution.resolved_precision, []).append(trained)
        report(result())
    return result()


def _published(dataset: str, model: str, config: TrainConfig) -> float | None:
    """Clean accuracy in percent, Table 1 of the paper; None where it has none for this network and these epochs."""
    preset, case = PRESETS[dataset], (dataset, config.loss, "clean")
    if model != preset.model or not config.epochs == config.warm_up_epochs == preset.epochs:
        return None
    return next((f.value for f in load_published("table1") if (f.dataset, f.column, f.row) == case), None)
