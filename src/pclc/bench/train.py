"""Whole training epochs, with shuffling and augmentation, beside the loop that everybody writes."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import pclc
from pclc.bench.result import BenchResult, conditions
from pclc.data.augment import Augmentation
from pclc.data.dataset import Dataset
from pclc.execution import Execution
from pclc.training.config import TrainConfig


class _Examples(torch.utils.data.Dataset[tuple[Tensor, Tensor]]):
    """One example at a time, as data sets are usually written."""

    def __init__(self, dataset: Dataset, augmentation: Augmentation) -> None:
        self._dataset, self._augmentation = dataset, augmentation

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        image = self._dataset.images[i].float() / 255
        padding = self._augmentation.crop_padding
        if padding:
            height, width = image.shape[1:]
            down, right = torch.randint(0, 2 * padding + 1, (2,)).tolist()
            image = nn.functional.pad(image, (padding,) * 4)[:, down : down + height, right : right + width]
        if self._augmentation.flip and torch.rand(()) < 0.5:
            image = image.flip(2)
        return image, self._dataset.labels[i]


def plain_epochs(
    model: nn.Module, dataset: Dataset, config: TrainConfig, device: torch.device, epochs: int, workers: int
) -> float:
    """Images a second of the plain loop: Dataset, DataLoader, eager float32, the default Adam."""
    model = model.to(device)
    model.train()
    loader = DataLoader(
        _Examples(dataset, config.images),
        config.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=workers,
        pin_memory=device.type == "cuda",
        persistent_workers=workers > 0,
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=config.lr)
    criterion = nn.CrossEntropyLoss()
    rates = []
    for _ in range(epochs + 1):  # the first one warms up
        start = time.perf_counter()
        for images, labels in loader:
            images, labels = images.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            criterion(model(images), labels).backward()
            optimizer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        rates.append(len(loader) * config.batch_size / (time.perf_counter() - start))
    return median(rates[1:])


def bench_train(
    dataset: Dataset,
    model_name: str,
    config: TrainConfig,
    execution: Execution,
    losses: Sequence[str] | None = None,
    epochs: int = 5,
    plain: bool = True,
    workers: int = 0,
    report: Callable[[dict[str, Any]], None] = lambda row: None,
) -> BenchResult:
    """Time epochs of each loss, and of the plain loop with cross-entropy, on the same network and data.

    Losses are ce and pc-lc where none are named. Adversarial training with method "pc" has its own: it is timed with PC
    and without.
    """
    rows: list[dict[str, Any]] = []
    recipe = config.adversarial.resolved() if config.adversarial else None

    def network() -> nn.Module:
        torch.manual_seed(config.seed)
        channels, size = dataset.images.shape[1:3]
        return pclc.create_model(model_name, len(dataset.classes), in_channels=channels, image_size=size)

    def add(variant: str, precision: str, rate: float, setup: float | None) -> None:
        first = rows[0]["img/s"] if rows else rate
        row = {
            "data": dataset.name,
            "model": model_name,
            "batch": config.batch_size,
            "augmentation": config.augmentation,
            "adversarial": f"{recipe.method}, {recipe.steps} steps" if recipe else "no",
            "variant": variant,
            "precision": precision,
            "img/s": rate,
            "s an epoch": len(dataset) / rate,
            "set-up s": setup,
            "times the first row": rate / first,
        }
        rows.append(row)
        report(row)

    plain_rounds = max(1, epochs // 2)  # it is slow, and its epochs are alike
    if plain:
        rate = plain_epochs(network(), dataset, config, execution.torch_device, plain_rounds, workers)
        add("plain loop, ce", "torch's default", rate, None)
    for variant, settings in _variants(config, losses, epochs + 1).items():
        result = pclc.train(network(), dataset, settings, execution=execution)
        rates = [entry["images_per_second"] for entry in result.history[1:]]
        add(f"pclc, {variant}", execution.resolved_precision, median(rates), result.setup_seconds)
    return BenchResult(
        benchmark="train",
        command=f"pclc bench train {dataset.name}",
        notes=(
            f"Median over {epochs} epochs ({plain_rounds} of the plain loop) after one that is left out, each with "
            "shuffling and augmentation; set-up (compilation, capture, the optimizer's first imports) apart. The plain "
            f"loop is a Dataset, a DataLoader with {workers} workers and an eager step; all on the same network, data "
            "and batch size, one after the other.",
        ),
        conditions={**conditions(execution.torch_device), "compiled": "yes" if execution.compile else "no"},
        rows=tuple(rows),
    )


def _variants(config: TrainConfig, losses: Sequence[str] | None, epochs: int) -> dict[str, TrainConfig]:
    """What is timed, by name: one phase of so many epochs each."""
    config = replace(config, loss="ce", warm_up_epochs=0, epochs=epochs)
    recipe = config.adversarial
    if recipe is None or recipe.method != "pc":
        return {loss: replace(config, loss=loss) for loss in losses or ("ce", "pc-lc")}  # type: ignore[arg-type]
    if losses:
        raise ValueError(
            f'Expected no losses for method "pc", which is timed with PC and without, but got {", ".join(losses)}.'
        )
    without = replace(recipe, beta=0.0, logit_weight=0.0)
    return {"ce": replace(config, adversarial=without), f"ce + {recipe.beta:g} PC": config}
