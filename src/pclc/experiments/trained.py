"""Models of a store: trained where they are missing, with one cross-entropy phase for all losses that begin with it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pclc.data import Dataset, load_dataset
from pclc.execution import Execution
from pclc.experiments.experiment import Training
from pclc.experiments.store import Store
from pclc.models import create_model, load_model
from pclc.training import RunDirectory, train


class BusyError(RuntimeError):
    """Another process works on what is needed."""


@dataclass(frozen=True, eq=False)
class Trained:
    """A model and how it came about: what its `training.json` says, the precision, and the hash of its training."""

    model: nn.Module
    about: dict[str, Any]


def warm_up_of(training: Training) -> Training | None:
    """The training that ends where the first phase of `training` does; None where it has no phase to share.

    A phase begins with a fresh optimizer, and random numbers belong to (seed, epoch). So the first phase of PC-LC, the
    first phase of cross-entropy and a cross-entropy training of that length are the same computation.

    Example:
        >>> from pclc.training import paper_config
        >>> ce, pc = (Training("mnist", "lenet5", paper_config("mnist", loss=loss)) for loss in ("ce", "pc-lc"))
        >>> warm_up_of(ce) == warm_up_of(pc), warm_up_of(pc).config.phases
        (True, (Phase(criteria=('ce',), epochs=50),))
    """
    config = training.config
    if len(config.phases) < 2 or config.phases[0].criteria != ("ce",):
        return None
    # Averages go on from phase to phase, and an epoch that is chosen belongs to the last phase.
    if config.ema or config.validation or (config.adversarial and config.adversarial.validate_every > 1):
        return None
    unused = {
        field.name: field.default for field in fields(config) if field.name in ("margin", "logit_weight", "alpha")
    }
    changes: dict[str, Any] = {"loss": "ce", "warm_up_epochs": 0, "epochs": config.phases[0].epochs, **unused}
    return replace(training, config=replace(config, **changes))


def trained_model(store: Store, training: Training, execution: Execution, root: Path | None = None) -> Trained:
    """The model of a training (see `hold_model`), without holding it any longer."""
    with hold_model(store, training, execution, root) as trained:
        return trained


@contextmanager
def hold_model(store: Store, training: Training, execution: Execution, root: Path | None = None) -> Iterator[Trained]:
    """Yield the model of a training, from the store where it is, trained there where it is not.

    A training that was killed goes on at its last checkpoint. While the block lasts, its folder belongs to this
    process.

    Args:
        store: where it is kept.
        training: data set, network and recipe.
        execution: how it runs, but for the precision of a training that has its own.
        root: folder with the data sets.

    Raises:
        BusyError: another process works with it.
    """
    with store.lock(training) as held:
        if not held:
            raise BusyError(f"The model {training.hash} is in use by another process.")
        folder = store.model_folder(training)
        if not store.is_trained(training) and not store.seal(training):
            own = replace(execution, precision=training.precision) if training.precision else execution
            _prepare(store, training, own, root)
            data = load_dataset(training.dataset, "train", root)
            train(_network(training, data), data, training.config, out=folder, execution=own)
            store.seal(training)
        model, run = execution.place(load_model(folder)).eval(), RunDirectory(folder)
        yield Trained(model, {"hash": training.hash, "precision": run.config["precision"], **run.result})


def _network(training: Training, data: Dataset) -> nn.Module:
    """The network with the weights that its seed gives."""
    torch.manual_seed(training.config.seed)
    channels, size = data.images.shape[1:3]
    return create_model(training.model, num_classes=len(data.classes), in_channels=channels, image_size=size)


def _prepare(store: Store, training: Training, execution: Execution, root: Path | None) -> None:
    """Leave a folder in which the training goes on, or begins."""
    folder = store.model_folder(training)
    if _can_go_on(folder, execution):
        return
    store.clear(training)
    first = warm_up_of(training)
    if first is None:
        return
    about = trained_model(store, first, execution, root).about
    warm_up = store.model_folder(first)
    model = load_model(warm_up)
    folder.mkdir(parents=True, exist_ok=True)
    # A checkpoint at the end of the first phase. The next one begins with a fresh optimizer, so none is kept.
    state = {
        "model": model.state_dict(),
        "optimizer": {},
        "history": RunDirectory(warm_up).metrics,
        "seconds": about["seconds"],
        "setup_seconds": about["setup_seconds"],
    }
    RunDirectory(folder).save_checkpoint(state)


def _can_go_on(folder: Path, execution: Execution) -> bool:
    """Whether there is a checkpoint that fits: readable, and of a run with the same precision."""
    run = RunDirectory(folder)
    if run.finished:
        return False  # without its weights, or damaged: what is whole is not trained again
    try:
        if (folder / "config.json").exists() and run.config["precision"] != execution.resolved_precision:
            return False
        return run.load_checkpoint() is not None
    except Exception:  # whatever a damaged file gives: it is trained again
        return False
