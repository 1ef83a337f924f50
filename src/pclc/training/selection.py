"""The best epoch of adversarial training: the one with the highest robust accuracy on held-out examples."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from pclc.attacks import PGD, ZeroGradientWarning
from pclc.data.dataset import Dataset
from pclc.data.split import stratified_indices
from pclc.execution import Execution, in_batches
from pclc.training.adversarial import AdversarialConfig
from pclc.training.config import TrainConfig
from pclc.training.processes import Processes
from pclc.training.watch import CatastrophicOverfittingWarning, absence_notice, collapse_notice

# Examples on which robust accuracy is measured: enough to tell epochs apart, few enough to measure after each one.
_EXAMPLES = 1_000
_STEPS = 10


def watched_examples(dataset: Dataset) -> Dataset:
    """At most 1,000 examples, the classes in proportion, the same for every seed."""
    if len(dataset) <= _EXAMPLES:
        return dataset
    chosen = stratified_indices(dataset.labels.cpu().numpy(), _EXAMPLES, f"robust accuracy of {dataset.name}")
    return dataset.subset(torch.from_numpy(chosen))


def selection_attack(config: AdversarialConfig) -> PGD:
    """PGD-10 on the margin, with the largest eps of training: stronger than one step, and it sees through saturation.

    Example:
        >>> print(selection_attack(AdversarialConfig("mix", eps=(0.1, 0.2))))
        pgd(eps=0.2, alpha=0.05, steps=10, objective="margin")
    """
    eps = config.largest_eps
    return PGD(eps=eps, alpha=eps / 4, steps=_STEPS, norm=config.norm, objective="margin")


def robust_accuracy(
    model: nn.Module, dataset: Dataset, attack: PGD, seed: int, execution: Execution, peers: Processes
) -> float:
    """Share of the examples that the model gets right under attack; each process takes its part of them."""
    device = execution.torch_device
    # Compiling the model as it is attacked, and recording graphs of it, takes longer than the few passes here.
    crafting = replace(execution, compile=False, cuda_graphs=False)
    mine = torch.arange(peers.rank, len(dataset), peers.count, device="cpu")

    def right(images: Tensor, labels: Tensor, index: Tensor) -> Tensor:
        x = execution.lay_out(images.to(device).float().div(255))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ZeroGradientWarning)
            return ~attack.run(model, x, labels.to(device), seed, index.to(device), crafting).success

    survivors = in_batches(right, dataset.images[mine], dataset.labels[mine], mine, size=execution.resolved_batch_size)
    return peers.sum(survivors.sum().double()).item() / len(dataset)


@dataclass(frozen=True)
class Best:
    """The best epoch so far (from 1), its robust accuracy and its weights."""

    epoch: int
    robust_accuracy: float
    weights: dict[str, Tensor]


class Selection:
    """Measures robust accuracy after an epoch, keeps the weights of the best one, and watches for a collapse.

    With a validation split it chooses among the epochs of the last phase; earlier ones are a warm-up, often with
    another loss. Without a split it measures on training examples and chooses nothing.
    """

    def __init__(
        self,
        config: TrainConfig,
        recipe: AdversarialConfig,
        dataset: Dataset,
        validation: Dataset | None,
        execution: Execution,
        peers: Processes,
    ) -> None:
        self.best: Best | None = None
        self._chooses = validation is not None
        self.name = "validation_robust_accuracy" if self._chooses else "train_robust_accuracy"  # in an epoch's entry
        self._examples = watched_examples(dataset if validation is None else validation)
        self._every, self._attack, self._seed = recipe.validate_every, selection_attack(recipe), config.seed
        self._epochs = sum(phase.epochs for phase in config.phases)
        self._first = self._epochs - config.epochs + 1
        self._execution, self._peers = execution, peers

    def measure(self, model: nn.Module, entry: dict[str, Any], history: Sequence[dict[str, Any]]) -> None:
        """Add robust accuracy to an epoch's entry, None where it is not due; `history` has the epochs before."""
        epoch = entry["epoch"]
        entry[self.name] = None
        if epoch % self._every and epoch != self._epochs:
            return
        robust = robust_accuracy(model, self._examples, self._attack, self._seed, self._execution, self._peers)
        entry[self.name] = robust
        # Of epochs that withstand nothing the latest is kept: it is trained longest.
        better = self.best is None or self.best.robust_accuracy == 0 or robust > self.best.robust_accuracy
        if self._chooses and epoch >= self._first and better:
            weights = {name: copy.deepcopy(value) for name, value in model.state_dict().items()}  # not only tensors
            self.best = Best(epoch, robust, weights)
        course = [*(e[self.name] for e in history if e[self.name] is not None), robust]
        notice = collapse_notice(course) or (absence_notice(course) if epoch == self._epochs else None)
        if notice and self._peers.leads:
            warnings.warn(f"Epoch {epoch}: {notice}", CatastrophicOverfittingWarning, stacklevel=2)
