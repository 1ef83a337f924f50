"""Training: phases of epochs of steps. A run that is killed resumes from its last checkpoint."""

import math
import time
import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pclc.attacks.crafting import is_same
from pclc.attacks.frozen import frozen
from pclc.data.dataset import Dataset
from pclc.data.feed import Feed, epoch_seed
from pclc.data.split import split_validation
from pclc.execution import Execution, ieee_fp32, in_batches, is_of_layout, leaves_nothing_to_fuse, made_ready
from pclc.hashes import settings_hash, tensor_hash
from pclc.models import load_weights, save_model
from pclc.models.config import config_of
from pclc.models.weights import unwrap
from pclc.training.average import Average
from pclc.training.batch_loss import BatchLoss, adversarial_loss, plain_loss
from pclc.training.checks import (
    check_model,
    check_outputs,
    check_progress,
    check_settings,
    check_takes_float32,
)
from pclc.training.config import Phase, TrainConfig
from pclc.training.optimizers import load_optimizer, make_optimizer, set_learning_rate
from pclc.training.processes import Processes, processes
from pclc.training.progress import Bar, Progress, bar, tensorboard
from pclc.training.run_directory import RunDirectory
from pclc.training.selection import Best, Selection
from pclc.training.step import Step


@dataclass(frozen=True)
class TrainResult:
    """A trained model and how it was trained.

    `best_epoch` is the epoch (from 1) whose weights the model has, where one was chosen: in adversarial training with a
    validation split. None: the weights are those of the last epoch.
    """

    model: nn.Module
    history: tuple[dict[str, Any], ...]
    config: TrainConfig
    seconds: float
    setup_seconds: float
    test_accuracy: float | None
    best_epoch: int | None = None


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
        model: maps images in [0, 1] to logits. Layers in eval mode whose parameters are frozen by
            `requires_grad_(False)` stay in eval mode: a frozen BatchNorm keeps its statistics.
        dataset: the training set, of which `config.validation` may be held out.
        config: what is trained and how; by default the paper's protocol for grey images.
        out: run directory. A run that was killed there resumes; a finished one is read back.
        execution: where and how fast.
        test: a set on which the final model's accuracy is measured, in float32. Nothing is chosen on it.
        progress: show a progress bar on stderr.
        checkpoint_seconds: least time between two checkpoints, which are written at the end of epochs.

    Example:
        >>> import pclc
        >>> model = pclc.create_model("lenet8", num_classes=10)
        >>> config = pclc.TrainConfig(loss="ce", warm_up_epochs=0, epochs=1)
        >>> result = pclc.train(model, pclc.load_dataset("digits"), config, execution=pclc.Execution(device="cpu"))
        >>> len(result.history)
        1
    """
    check_model(model)
    if not isinstance(dataset, Dataset):
        raise TypeError(
            f"Expected `dataset` to be a pclc.Dataset of images, labels and classes, but got {type(dataset).__name__}."
        )
    for name, given, kind in (("config", config, TrainConfig), ("test", test, Dataset)):
        if given is not None and not isinstance(given, kind):
            raise TypeError(f"Expected `{name}` to be a pclc.{kind.__name__}, but got {type(given).__name__}.")
    if test is not None:
        ours, theirs = tuple(dataset.classes), tuple(test.classes)
        if theirs != ours and set(theirs) == set(ours):
            raise ValueError(
                "Expected `test` to have its classes in the order of `dataset`, because labels are positions in it, "
                f"but got {theirs!r} and {ours!r}."
            )
    config = config or TrainConfig()
    execution = execution or Execution()
    with processes(execution.torch_device) as peers:
        run = _Run(model, dataset, config, RunDirectory(out) if out else None, execution, peers)
        return run.go(test, progress and peers.leads, checkpoint_seconds)


def accuracy(model: nn.Module, dataset: Dataset, execution: Execution | None = None) -> float:
    """Share of a data set that the model classifies correctly, in eval mode and IEEE float32."""
    execution = execution or Execution()
    device = execution.torch_device

    def correct(images: Tensor, labels: Tensor) -> Tensor:
        x = images.to(device).float() / 255
        # As they are, where that will do: on CUDA channels last is slow without tensor cores.
        logits: Tensor = model(x if execution.channels_last else execution.lay_out(x))
        return logits.argmax(1) == labels.to(device)

    with frozen(model), torch.no_grad(), ieee_fp32():
        share = in_batches(correct, dataset.images, dataset.labels, size=execution.resolved_batch_size).double().mean()
    return float(share)


def _is_held_still(module: nn.Module) -> bool:
    """Whether somebody froze it. Eval mode alone does not tell: every loaded model is in it."""
    asked = [parameter.requires_grad for parameter in module.parameters()]
    return not module.training and len(asked) > 0 and not any(asked)


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
        self.written = directory if peers.leads else None  # the one process that writes
        self.device = execution.torch_device
        self.captures = execution.captures and peers.count == 1
        self.num_classes = len(dataset.classes)
        self.validation: Dataset | None = None
        self.dataset_name = dataset.name
        # For a data set as it was read the name identifies the images; for a part or a changed copy it does not.
        self.own_data = {} if dataset.as_read else {"hash": tensor_hash(dataset.images, dataset.labels)}
        if config.validation:
            dataset, self.validation = split_validation(dataset, config.validation)
        self.examples = len(dataset)
        self.model = execution.place(unwrap(model))
        self.some = dataset.subset(range(min(2, len(dataset))))
        self.diverged = False
        self.shown: Bar | None = None
        try:
            logits = self._logits(self.some)
        except RuntimeError as error:
            if not is_of_layout(error):
                check_takes_float32(self.model, error)
                raise
            self.execution = execution = replace(execution, channels_last=False)
            execution.place(self.model)
            logits = self._logits(self.some)
        odd = [
            *check_outputs(logits, self.some, int(dataset.labels.max())),
            *check_settings(config, self.examples),
        ]
        for warning in odd if peers.leads else ():
            warnings.warn(warning, stacklevel=3)
        self.average = Average(self.model, config.ema) if config.ema else None
        self.selection: Selection | None = None
        if config.adversarial is not None:
            self.selection = Selection(config, config.adversarial, dataset, self.validation, execution, peers)
        self.feed = Feed(dataset, config.batch_size, config.images, self.device, peers.rank, peers.count)
        self.history: list[dict[str, Any]] = []
        self.seconds = self.setup_seconds = 0.0

    def _logits(self, dataset: Dataset) -> Tensor:
        """Of the first two images, in eval mode."""
        generators = torch.random.fork_rng([self.device] if self.device.type == "cuda" else [])
        with generators, frozen(self.model), torch.no_grad():
            x = dataset.images[:2].to(self.device).float() / 255
            logits: Tensor = self.model(self.execution.lay_out(x))
        return logits

    def go(self, test: Dataset | None, progress: bool, checkpoint_seconds: float) -> TrainResult:
        if test is not None:
            self._logits(test)  # images that the model does not take fail now, not after the last epoch
        if self.written:
            self.written.begin(self._description())
        if self.directory and self.directory.finished:
            return self._read_back(self.directory, test)
        with self.written.held() if self.written else nullcontext():
            # By another call, meanwhile. Of several processes only the first holds the folder, and all have to agree.
            if self.directory and self.peers.count == 1 and self.directory.finished:
                return self._read_back(self.directory, test)
            return self._train(test, progress, checkpoint_seconds)

    def _train(self, test: Dataset | None, progress: bool, checkpoint_seconds: float) -> TrainResult:
        epochs = sum(phase.epochs for phase in self.config.phases)
        resumed = self.directory.load_checkpoint() if self.directory else None
        if self.directory and resumed and resumed.get("run", self._hash()) != self._hash():
            raise ValueError(
                f"Expected the checkpoint in {self.directory.path} to belong to this run, but it belongs to one with "
                "other settings. Remove it to start again."
            )
        if resumed:
            self.model.load_state_dict(resumed["model"])
            self.history, self.seconds = resumed["history"], resumed["seconds"]
            self.setup_seconds = resumed["setup_seconds"]
            if self.average:
                self.average.load(resumed["average"])
            if self.selection and "best" in resumed:
                self.selection.best = Best(**resumed["best"])
        if self.written:
            self.written.write_metrics(self.history)
        generators = torch.random.fork_rng([self.device] if self.device.type == "cuda" else [])
        title = f"{self.dataset_name} {self.config.loss}"
        folder = self.written.path if self.written else None
        done = len(self.history)
        with generators, bar(title, epochs, done, progress) as shown, tensorboard(folder, done) as board:
            self.shown = shown
            watchers = [watch for watch in (shown, board) if watch is not None]
            parallel = self.peers.wrap(self.model, self.device)
            batch_loss = self._batch_loss(parallel)
            first = 0
            for phase in self.config.phases:
                if len(self.history) < first + phase.epochs:
                    optimizer_state = resumed["optimizer"] if resumed and len(self.history) > first else None
                    self._run_phase(phase, first, parallel, batch_loss, optimizer_state, watchers, checkpoint_seconds)
                first += phase.epochs
        if self.best:
            self.model.load_state_dict(self.best.weights)
        elif self.average:
            self.average.store()
        self.peers.share_buffers(self.model)
        self.model.eval()
        return self._finish(test)

    def _run_phase(
        self,
        phase: Phase,
        first: int,
        parallel: nn.Module,
        batch_loss: BatchLoss,
        optimizer_state: dict[str, Any] | None,
        watchers: list[Progress],
        checkpoint_seconds: float,
    ) -> None:
        """Epochs of one phase; `first` is the number of epochs in the phases before it."""
        still = [module for module in self.model.modules() if _is_held_still(module)]
        parallel.train()
        for module in still:
            module.eval()
        started = time.perf_counter()
        optimizer = make_optimizer(self.config, self.model.parameters(), self.device)
        if optimizer_state is not None:
            load_optimizer(optimizer, optimizer_state)
        self.feed.start_epoch(self.config.seed, len(self.history))
        criteria = [self.config.criterion(name) for name in phase.criteria]
        step = Step(self.model, batch_loss, criteria, optimizer, self.feed, self.execution, self.captures, self.average)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.setup_seconds += time.perf_counter() - started
        last_checkpoint = time.perf_counter()
        while len(self.history) < first + phase.epochs:
            epoch = len(self.history)
            lr = self.config.learning_rate(phase, epoch - first)
            set_learning_rate(optimizer, lr)
            torch.manual_seed(epoch_seed(self.config.seed, "dropout", epoch, self.peers.rank))
            entry = self._run_epoch(epoch, phase, lr, step)
            for watch in watchers:
                watch(entry)
            if self.written:
                self.written.append_metrics(entry)
            # Before the checkpoint, from which a run that has diverged would resume, or even finish.
            check_progress(self.history[first:], self.config, self.num_classes, self.diverged)
            if self.written and time.perf_counter() - last_checkpoint >= checkpoint_seconds:
                self.written.save_checkpoint(self._checkpoint(optimizer))
                last_checkpoint = time.perf_counter()
        self.model.zero_grad(set_to_none=True)

    def _run_epoch(self, epoch: int, phase: Phase, lr: float, step: Step) -> dict[str, Any]:
        started = time.perf_counter()
        self.feed.start_epoch(self.config.seed, epoch)
        for number in range(1, self.feed.batches + 1):
            step()
            if self.shown:
                self.shown.step(number / self.feed.batches)
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
        with self.average.in_place() if self.average else nullcontext():
            self.peers.share_buffers(self.model)  # processes that measure a share each must have the same model
            # The loss of an epoch does not show what its last step did. A masked class, at -inf, is no divergence.
            self.diverged = not math.isfinite(loss) or not bool((self._logits(self.some) < torch.inf).all())
            if self.validation is not None:
                entry["validation_accuracy"] = accuracy(self.model, self.validation, self.execution)
            if self.selection is not None and not self.diverged:  # otherwise the run ends here
                self.selection.measure(self.model, entry, self.history)
        self.history.append(entry)
        return entry

    @property
    def best(self) -> Best | None:
        """The epoch whose weights are kept; None where none is chosen."""
        return self.selection.best if self.selection else None

    def _batch_loss(self, parallel: nn.Module) -> BatchLoss:
        forward, recipe = self._compiled(parallel), self.config.adversarial
        if recipe is None:
            return plain_loss(forward, self.execution)
        seed = epoch_seed(self.config.seed, "crafting")
        return adversarial_loss(self.model, self._attacked(), forward, recipe, seed, self.execution)

    def _attacked(self) -> Callable[[], Callable[[Tensor], Tensor]]:
        """The forward pass for crafting: the model made ready again in each step where that is best, or compiled.

        Making it ready takes many small operations, which cost little in a recorded step.
        """
        ready = partial(made_ready, self.model, replace(self.execution, compile=False))
        if self.captures and self.execution.resolved_precision != "fp32":
            with frozen(self.model), torch.no_grad():
                if leaves_nothing_to_fuse(ready()):
                    x = self.execution.lay_out(self.some.images.to(self.device).float() / 255)
                    norms = [module for module in self.model.modules() if isinstance(module, nn.BatchNorm2d)]
                    spreads = [norm.running_var for norm in norms if norm.running_var is not None]
                    # A new BatchNorm changes nothing, so that a wrong folding of it would not show.
                    for spread in spreads:
                        spread /= 4  # exact
                    try:
                        same = is_same(self.model, ready(), x, self.execution)
                    finally:
                        for spread in spreads:
                            spread *= 4
                    if same:
                        return ready
        compiled = self._compiled(self.model)
        return lambda: compiled

    def _compiled(self, model: nn.Module) -> Callable[[Tensor], Tensor]:
        recipe = self.config.adversarial
        each = 1 + (recipe.steps or 0) if recipe else 1
        passes = sum(phase.epochs * len(phase.criteria) * each for phase in self.config.phases)
        left = passes * self.feed.batches * (1 - len(self.history) / sum(p.epochs for p in self.config.phases))
        return torch.compile(model, dynamic=False) if self.execution.compiles(int(left)) else model

    def _checkpoint(self, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
        state = {
            "run": self._hash(),
            "model": self.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "history": self.history,
            "seconds": self.seconds,
            "setup_seconds": self.setup_seconds,
        }
        if self.average:
            state["average"] = self.average.tensors
        if self.best:
            state["best"] = vars(self.best)
        return state

    def _description(self) -> dict[str, Any]:
        return {
            "train": self.config.as_dict(),
            "dataset": {"name": self.dataset_name, "examples": self.examples, **self.own_data},
            "model": asdict(config_of(self.model)),
            "precision": self.execution.resolved_precision,
        }

    def _hash(self) -> str:
        """The run that a checkpoint belongs to, as its folder describes it."""
        assert self.directory is not None
        return settings_hash(self.directory.config)

    def _finish(self, test: Dataset | None) -> TrainResult:
        test_accuracy = accuracy(self.model, test, self.execution) if test is not None else None
        taken = self.best.epoch if self.best else len(self.history)
        if self.written:
            save_model(self.model, self.written.path)
            self.written.finish(
                {
                    "epochs": len(self.history),
                    "seconds": self.seconds,
                    "setup_seconds": self.setup_seconds,
                    "device": torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else "cpu",
                    "train_accuracy": self.history[taken - 1]["accuracy"],
                    "test_accuracy": test_accuracy,
                    "test_examples": len(test) if test is not None else None,
                    **({"best_epoch": self.best.epoch} if self.best else {}),
                }
            )
        return self._result(test_accuracy, self.best.epoch if self.best else None)

    def _read_back(self, directory: RunDirectory, test: Dataset | None) -> TrainResult:
        load_weights(self.model, directory.path / "model.safetensors")
        self.model.eval()
        result = directory.result
        self.history, self.seconds = directory.metrics, result["seconds"]
        self.setup_seconds = result["setup_seconds"]
        # Measured again: the accuracy in the folder may be of another test set, or of none.
        measured = result["test_accuracy"] if test is None else accuracy(self.model, test, self.execution)
        return self._result(measured, result.get("best_epoch"))

    def _result(self, test_accuracy: float | None, best_epoch: int | None) -> TrainResult:
        return TrainResult(
            self.model, tuple(self.history), self.config, self.seconds, self.setup_seconds, test_accuracy, best_epoch
        )
