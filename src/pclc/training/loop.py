"""Training: phases of epochs of steps, which can be killed anywhere and goes on where it was."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pclc.data.dataset import Dataset
from pclc.data.feed import Feed, epoch_seed
from pclc.data.split import split_validation
from pclc.execution import Execution, ieee_fp32, in_batches
from pclc.models import load_weights, save_model
from pclc.models.config import config_of
from pclc.models.weights import unwrap
from pclc.training.config import Phase, TrainConfig
from pclc.training.processes import Processes, processes
from pclc.training.progress import Progress, bar, tensorboard
from pclc.training.run_directory import RunDirectory
from pclc.training.step import Step

# Epochs without any movement after which a loss counts as collapsed.
_PATIENCE = 5


@dataclass(frozen=True)
class TrainResult:
    """A trained model and how it came about."""

    model: nn.Module
    history: tuple[dict[str, Any], ...]
    config: TrainConfig
    seconds: float
    setup_seconds: float
    test_accuracy: float | None


class TrainingError(RuntimeError):
    """A run that cannot come to anything."""


def train(
    model: nn.Module,
    dataset: Dataset,
    config: TrainConfig | None = None,
    *,
    out: Path | str | None = None,
    execution: Execution | None = None,
    test: Dataset | None = None,
    progress: bool = False,
    checkpoint_seconds: float = 15.0,
) -> TrainResult:
    """Train a model in place.

    Args:
        model: takes images in [0, 1] and gives logits.
        dataset: the training set; `config.validation` of it may be held out.
        config: what is trained and how; by default the paper's protocol for grey images.
        out: run directory. A run that was killed there goes on; one that is finished is read.
        execution: where and how fast.
        test: a set on which the final model's accuracy is measured, in float32. Nothing is chosen by it.
        progress: show a bar on the error stream.
        checkpoint_seconds: least time between two checkpoints; they fall on ends of epochs.

    Example:
        >>> import pclc
        >>> model = pclc.create_model("lenet8", num_classes=10)
        >>> config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=1)
        >>> result = pclc.train(model, pclc.load_dataset("digits"), config, execution=pclc.Execution(device="cpu"))
        >>> len(result.history)
        1
    """
    config = config or TrainConfig()
    execution = execution or Execution()
    with processes(execution.torch_device) as peers:
        run = _Run(model, dataset, config, RunDirectory(out) if out else None, execution, peers)
        return run.go(test, progress and peers.leads, checkpoint_seconds)


def accuracy(model: nn.Module, dataset: Dataset, execution: Execution | None = None) -> float:
    """Share of a data set that the model gets right, in eval mode and IEEE float32."""
    execution = execution or Execution()
    device = execution.torch_device
    was_training = model.training
    model.eval()

    def correct(images: Tensor, labels: Tensor) -> Tensor:
        logits: Tensor = model(images.to(device).float() / 255)
        return logits.argmax(1) == labels.to(device)

    with torch.no_grad(), ieee_fp32():
        share = in_batches(correct, dataset.images, dataset.labels, size=execution.resolved_batch_size).double().mean()
    model.train(was_training)
    return float(share)


class _Run:
    """The state of one call of :func:`train`."""

    def __init__(
        self,
        model: nn.Module,
        dataset: Dataset,
        config: TrainConfig,
        directory: RunDirectory | None,
        execution: Execution,
        peers: Processes,
    ) -> None:
        self.config, self.directory, self.execution, self.peers = config, directory, execution, peers
        self.device = execution.torch_device
        self.num_classes = len(dataset.classes)
        self.validation: Dataset | None = None
        self.dataset_name = dataset.name
        if config.validation:
            dataset, self.validation = split_validation(dataset, config.validation)
        self.examples = len(dataset)
        self.model = execution.place(unwrap(model))
        self.feed = Feed(dataset, config.batch_size, config.images, self.device, peers.rank, peers.count)
        self.history: list[dict[str, Any]] = []
        self.seconds = self.setup_seconds = 0.0

    def go(self, test: Dataset | None, progress: bool, checkpoint_seconds: float) -> TrainResult:
        if self.directory and self.peers.leads:
            self.directory.begin(self._description())
        if self.directory and self.directory.finished:
            return self._read_back(self.directory)
        epochs = sum(phase.epochs for phase in self.config.phases)
        resumed = self.directory.load_checkpoint() if self.directory else None
        if resumed:
            self.model.load_state_dict(resumed["model"])
            self.history, self.seconds = resumed["history"], resumed["seconds"]
            self.setup_seconds = resumed["setup_seconds"]
        if self.directory and self.peers.leads:
            self.directory.write_metrics(self.history)
        generators = torch.random.fork_rng([self.device] if self.device.type == "cuda" else [])
        title = f"{self.dataset_name} {self.config.loss}"
        folder = self.directory.path if self.directory and self.peers.leads else None
        with generators, bar(title, epochs, len(self.history), progress) as shown, tensorboard(folder) as board:
            parallel = self.peers.wrap(self.model, self.device)
            forward = self._compiled(parallel)
            first = 0
            for phase in self.config.phases:
                if len(self.history) < first + phase.epochs:
                    optimizer_state = resumed["optimizer"] if resumed and len(self.history) > first else None
                    self._run_phase(
                        phase, first, parallel, forward, optimizer_state, [shown, board], checkpoint_seconds
                    )
                first += phase.epochs
        self.model.eval()
        return self._finish(test)

    def _run_phase(
        self,
        phase: Phase,
        first: int,
        parallel: nn.Module,
        forward: Callable[[Tensor], Tensor],
        optimizer_state: dict[str, Any] | None,
        watchers: list[Progress],
        checkpoint_seconds: float,
    ) -> None:
        """Epochs of one phase; `first` is the number of epochs in the phases before it."""
        parallel.train()
        started = time.perf_counter()
        on_cuda = self.device.type == "cuda"
        rate = torch.tensor(self.config.lr, device=self.device)
        optimizer = torch.optim.Adam(
            self.model.parameters(),
            lr=rate if on_cuda else self.config.lr,
            weight_decay=self.config.weight_decay,
            fused=True,
            capturable=on_cuda,
        )
        if optimizer_state is not None:
            optimizer.load_state_dict(optimizer_state)
            for group in optimizer.param_groups:
                group["lr"] = rate if on_cuda else self.config.lr
        self.feed.start_epoch(self.config.seed, len(self.history))
        criteria = [self.config.criterion(name) for name in phase.criteria]
        capture = self.execution.captures and self.peers.count == 1
        step = Step(self.model, forward, criteria, optimizer, self.feed, self.execution, capture)
        self._synchronize()
        self.setup_seconds += time.perf_counter() - started
        last_checkpoint = time.perf_counter()
        while len(self.history) < first + phase.epochs:
            epoch = len(self.history)
            lr = self.config.learning_rate(phase, epoch - first)
            rate.fill_(lr)
            for group in optimizer.param_groups:
                if not on_cuda:
                    group["lr"] = lr
            torch.manual_seed(epoch_seed(self.config.seed, "dropout", epoch, self.peers.rank))
            entry = self._run_epoch(epoch, phase, lr, step)
            for watch in watchers:
                watch(entry)
            if self.directory and self.peers.leads:
                self.directory.append_metrics(entry)
                if time.perf_counter() - last_checkpoint >= checkpoint_seconds:
                    self.directory.save_checkpoint(self._checkpoint(optimizer))
                    last_checkpoint = time.perf_counter()
            self._check_progress(first)
        self.model.zero_grad(set_to_none=True)

    def _run_epoch(self, epoch: int, phase: Phase, lr: float, step: Step) -> dict[str, Any]:
        started = time.perf_counter()
        self.feed.start_epoch(self.config.seed, epoch)
        for _ in range(self.feed.batches):
            step()
        loss, correct, examples = self.peers.sum(step.take_totals()).tolist()
        seconds = time.perf_counter() - started
        self.seconds += seconds
        entry = {
            "epoch": epoch + 1,
            "criterion": "+".join(phase.criteria),
            "lr": lr,
            "loss": loss / examples,
            "accuracy": correct / examples,
            "validation_accuracy": None,
            "images_per_second": examples / seconds,
        }
        if self.validation is not None:
            entry["validation_accuracy"] = accuracy(self.model, self.validation, self.execution)
        self.history.append(entry)
        return entry

    def _compiled(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        passes = sum(phase.epochs * len(phase.criteria) for phase in self.config.phases)
        left = passes * self.feed.batches * (1 - len(self.history) / sum(p.epochs for p in self.config.phases))
        return torch.compile(model, dynamic=False) if self.execution.compiles(int(left)) else model

    def _check_progress(self, first: int) -> None:
        """Stop what cannot come to anything, with what to try instead."""
        entry = self.history[-1]
        if not torch.tensor(entry["loss"]).isfinite():
            raise TrainingError(
                f"The loss is {entry['loss']} in epoch {entry['epoch']}: the training has diverged. Try a smaller "
                f"learning rate (now {entry['lr']:g}) or precision fp32."
            )
        recent = self.history[first:][-_PATIENCE:]
        spread = max(e["loss"] for e in recent) - min(e["loss"] for e in recent)
        at_chance = all(e["accuracy"] < 1.2 / self.num_classes for e in recent)
        if len(recent) == _PATIENCE and at_chance and spread <= 3e-4 * abs(entry["loss"]):
            raise TrainingError(
                f"The loss has stood at {entry['loss']:.4f} for {_PATIENCE} epochs with an accuracy of "
                f"{entry['accuracy']:.3f}, which is chance: the training has collapsed. Try a smaller learning rate "
                f"(now {entry['lr']:g}), and for PC a longer warm-up (now {self.config.warm_up_epochs} epochs)."
            )

    def _checkpoint(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        return {
            "model": self.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "history": self.history,
            "seconds": self.seconds,
            "setup_seconds": self.setup_seconds,
        }

    def _description(self) -> dict[str, Any]:
        return {
            "train": self.config.as_dict(),
            "dataset": {"name": self.dataset_name, "examples": self.examples},
            "model": asdict(config_of(self.model)),
            "precision": self.execution.resolved_precision,
        }

    def _finish(self, test: Dataset | None) -> TrainResult:
        test_accuracy = accuracy(self.model, test, self.execution) if test is not None else None
        if self.directory and self.peers.leads:
            save_model(self.model, self.directory.path)
            self.directory.finish(
                {
                    "epochs": len(self.history),
                    "seconds": self.seconds,
                    "setup_seconds": self.setup_seconds,
                    "device": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu",
                    "train_accuracy": self.history[-1]["accuracy"],
                    "test_accuracy": test_accuracy,
                    "test_examples": len(test) if test is not None else None,
                }
            )
        return self._result(test_accuracy)

    def _read_back(self, directory: RunDirectory) -> TrainResult:
        load_weights(self.model, directory.path / "model.safetensors")
        self.model.eval()
        result = directory.result
        self.history, self.seconds = directory.metrics, result["seconds"]
        self.setup_seconds = result["setup_seconds"]
        return self._result(result["test_accuracy"])

    def _result(self, test_accuracy: float | None) -> TrainResult:
        return TrainResult(
            self.model, tuple(self.history), self.config, self.seconds, self.setup_seconds, test_accuracy
        )

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
