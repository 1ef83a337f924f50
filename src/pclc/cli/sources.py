"""Models from anywhere: a run directory, a factory with weights, RobustBench's zoo."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import nn

from pclc.data import Dataset
from pclc.execution import Execution
from pclc.models import create_model, load_model, load_weights
from pclc.training import RunDirectory

# Names that RobustBench uses for the data sets of this package.
_ROBUSTBENCH_DATA = {"cifar10": "cifar10", "cifar100": "cifar100"}


@dataclass(frozen=True)
class Source:
    """Where a model comes from; exactly one of `run`, `factory` and `robustbench`.

    Args:
        run: run directory of `pclc train`, or a folder written by `save_model`.
        factory: a name of `create_model`, or `package.module:factory`; it is imported, which runs its code.
        robustbench: a name in RobustBench's zoo, where that package is installed.
        weights: with `factory`, a file for `load_weights`; with `robustbench`, the folder of its checkpoints.
        threat_model: with `robustbench`: "Linf" or "L2".
        trust_factory: let a run directory name `package.module:factory`.

    Example:
        >>> Source(factory="lenet8").name
        'lenet8'
    """

    run: Path | None = None
    factory: str | None = None
    robustbench: str | None = None
    weights: Path | None = None
    threat_model: str = "Linf"
    trust_factory: bool = False

    def __post_init__(self) -> None:
        given = [name for name in ("run", "factory", "robustbench") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(
                "Expected a model from one place, a run directory, --model or --robustbench, "
                f"but got {' and '.join(given) or 'none'}."
            )
        if self.run is not None and not self.run.is_dir():
            raise FileNotFoundError(f"Expected a run directory of pclc train, such as runs/x, but got {self.name!r}.")
        if self.weights is not None and self.run is not None:
            raise ValueError("Expected --weights with --model or --robustbench, but got a run directory.")
        if self.run is not None and not (self.run / "model.json").exists():
            why = "it has no model.json"
            if (self.run / "config.json").exists() or (self.run / "checkpoint.pt").exists():
                why = "its training is not finished: the command that began it continues it"
            raise ValueError(f"Expected {self.run} to hold a trained model, but {why}.")

    @property
    def name(self) -> str:
        """What tables call the model."""
        return str(self.run or self.factory or self.robustbench)

    @property
    def dataset(self) -> str | None:
        """The name of the data set that the model was trained on, where a run directory says so."""
        config = self._config
        return config["dataset"]["name"] if config else None

    @property
    def loss(self) -> str | None:
        """The name of the loss that the model was trained with, where a run directory says so."""
        return self._config.get("train", {}).get("loss")  # type: ignore[no-any-return]

    @property
    def _config(self) -> dict[str, Any]:
        """What the training was asked for; nothing where the folder does not say it."""
        if self.run is None or not (self.run / "config.json").exists():
            return {}
        return RunDirectory(self.run).config

    def load(self, dataset: Dataset, execution: Execution) -> nn.Module:
        """The model, in eval mode, on the device; `dataset` gives a factory its classes, channels and size."""
        if self.run is not None:
            model = load_model(self.run, trust_factory=self.trust_factory)
        elif self.factory is not None:
            model = _made(self.factory, self.weights, dataset)
        else:
            model = _from_robustbench(str(self.robustbench), self.weights, dataset.name, self.threat_model)
        return model.to(execution.torch_device).eval()


def _made(factory: str, weights: Path | None, dataset: Dataset) -> nn.Module:
    channels, size = dataset.images.shape[1:3]
    with torch.random.fork_rng(devices=[]):
        model = create_model(factory, len(dataset.classes), in_channels=channels, image_size=size)
    if weights is not None:
        load_weights(model, weights)
    return model


def _from_robustbench(name: str, folder: Path | None, dataset: str, threat_model: str) -> nn.Module:
    if dataset not in _ROBUSTBENCH_DATA:
        raise ValueError(
            f"Expected --dataset to be one of {', '.join(_ROBUSTBENCH_DATA)} with --robustbench, but got {dataset!r}."
        )
    try:
        from robustbench.utils import load_model as load_from_zoo
    except ImportError as error:
        raise ModuleNotFoundError(
            f"RobustBench is not installed or lacks something ({error}); --robustbench needs it. Install it "
            "as its page says (github.com/RobustBench/robustbench), or use --model package.module:factory --weights."
        ) from error
    where: dict[str, Any] = {} if folder is None else {"model_dir": str(folder)}
    try:
        model = load_from_zoo(model_name=name, dataset=_ROBUSTBENCH_DATA[dataset], threat_model=threat_model, **where)
    except KeyError:
        raise ValueError(
            f"Expected a name in RobustBench's zoo for {dataset}, {threat_model}, but got {name!r}."
        ) from None
    return cast(nn.Module, model)
