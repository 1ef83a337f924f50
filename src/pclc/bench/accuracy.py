"""Clean test accuracy of the paper's protocol, over seeds and precisions, beside the published figure."""

from collections.abc import Callable, Sequence
from statistics import mean, stdev
from typing import Any

import torch

import pclc
from pclc.bench.result import BenchResult, conditions
from pclc.data.dataset import Dataset
from pclc.execution import Execution
from pclc.experiments.published import load_published
from pclc.training import PRESETS, TrainConfig


def bench_accuracy(
    train_set: Dataset,
    test_set: Dataset,
    configs: Sequence[TrainConfig],
    executions: Sequence[Execution],
    model_name: str | None = None,
    report: Callable[[BenchResult], None] = lambda result: None,
) -> BenchResult:
    """Train every configuration in every execution; `report` sees what is there after each of them.

    `configs` differ in their seed alone.
    """
    name = model_name or PRESETS[train_set.name].model
    executions = list({execution.resolved_precision: execution for execution in executions}.values())  # each once
    accuracies: dict[str, list[float]] = {execution.resolved_precision: [] for execution in executions}
    seconds: dict[str, list[float]] = {precision: [] for precision in accuracies}
    result = None
    for config in configs:
        for execution in executions:
            torch.manual_seed(config.seed)
            channels, size = train_set.images.shape[1:3]
            model = pclc.create_model(name, len(train_set.classes), in_channels=channels, image_size=size)
            trained = pclc.train(model, train_set, config, execution=execution, test=test_set)
            assert trained.test_accuracy is not None
            accuracies[execution.resolved_precision].append(100 * trained.test_accuracy)
            seconds[execution.resolved_precision].append(trained.seconds)
            result = _result(train_set, len(test_set), name, configs[0], executions[0], accuracies, seconds)
            report(result)
    if result is None:
        raise ValueError("Expected at least one seed and one precision, but got none.")
    return result


def _result(
    train_set: Dataset,
    test_examples: int,
    model: str,
    config: TrainConfig,
    execution: Execution,
    accuracies: dict[str, list[float]],
    seconds: dict[str, list[float]],
) -> BenchResult:
    published = _published(train_set.name, config.loss)
    rows: list[dict[str, Any]] = [
        {
            "data": train_set.name,
            "model": model,
            "loss": config.loss,
            "epochs": f"{config.warm_up_epochs} + {config.epochs}",
            "precision": precision,
            "seeds": len(values),
            "accuracy %": ", ".join(f"{value:.2f}" for value in values),
            "mean": mean(values),
            "std": stdev(values) if len(values) > 1 else None,
            "published": published if _as_in_the_paper(train_set.name, model, config) else None,
            "seconds a run": mean(seconds[precision]),
        }
        for precision, values in accuracies.items()
        if values
    ]
    return BenchResult(
        benchmark="accuracy",
        command=f"pclc bench accuracy {train_set.name}",
        notes=(
            f"Clean accuracy of the last epoch's model on all {test_examples:,} test images, decided in IEEE float32, "
            f"seeds from {config.seed} on; published is Table 1 of the paper. Seconds are those of the epochs, without "
            "set-up.",
        ),
        conditions=conditions(execution.torch_device),
        rows=tuple(rows),
    )


def _published(dataset: str, loss: str) -> float | None:
    """Clean accuracy in percent, Table 1 of the paper; None where it has none."""
    case = (dataset, loss, "clean")
    return next((f.value for f in load_published("table1") if (f.dataset, f.column, f.row) == case), None)


def _as_in_the_paper(dataset: str, model: str, config: TrainConfig) -> bool:
    """Whether the published figure is about this network and these epochs."""
    preset = PRESETS[dataset]
    return model == preset.model and config.epochs == config.warm_up_epochs == preset.epochs
