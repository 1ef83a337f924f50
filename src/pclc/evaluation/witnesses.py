"""Adversarial examples as proof, in a file that anybody can check (`verification`)."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pclc.attacks.inputs import check_examples
from pclc.attacks.types import Model, Norm
from pclc.attacks.validate import check_ball
from pclc.data import Dataset
from pclc.evaluation.budget import from_bytes
from pclc.evaluation.candidates import look_at
from pclc.evaluation.result import Evaluation
from pclc.execution import Execution
from pclc.files import write_atomically
from pclc.hashes import model_hash, tensor_hash

FORMAT = "pclc-witnesses"
VERSION = 1


class DataSource(NamedTuple):
    """Where the originals can be found: a data set by name and split, with its hash."""

    name: str
    split: str
    hash: str

    @classmethod
    def of(cls, dataset: Dataset) -> "DataSource":
        """Of a whole split, as `load_dataset` gives it."""
        return cls(dataset.name, dataset.split, dataset_hash(dataset))


@dataclass(frozen=True, eq=False)
class Witnesses:
    """Adversarial examples of one model in one threat model. All of this is only claimed; `verify` checks it.

    Attributes:
        examples: (M, ...) float in [0, 1], or uint8.
        index: (M,) int64, places of the originals in their data.
        labels: (M,) int64, their true classes.
        norm: "Linf" or "L2".
        eps: radius of the ball.
        norms: (M,) float64, sizes of the perturbations in `norm`.
        margins: (M,) float64, largest false logit minus true logit, computed in float64; NaN where that cannot be.
        model_hash: of the model that they fool.
        data: where the originals can be found; None where they are only in the file.
        originals: (M, ...) like `examples`; None where `data` says where they are.
    """

    examples: Tensor = field(repr=False)
    index: Tensor = field(repr=False)
    labels: Tensor = field(repr=False)
    norm: Norm
    eps: float
    norms: Tensor = field(repr=False)
    margins: Tensor = field(repr=False)
    model_hash: str | None
    data: DataSource | None = None
    originals: Tensor | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return len(self.examples)

    def save(self, path: Path | str) -> None:
        """Write a safetensors file, whole or not at all."""
        from safetensors.torch import save

        names = ("examples", "index", "labels", "norms", "margins", "originals")
        tensors = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        about = {
            "format": FORMAT,
            "version": VERSION,
            "norm": self.norm,
            "eps": self.eps,
            "model_hash": self.model_hash,
            "data": self.data._asdict() if self.data else None,
        }
        content = save(
            {name: value.cpu().contiguous() for name, value in tensors.items()}, metadata={"pclc": json.dumps(about)}
        )
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content)


def dataset_hash(dataset: Dataset) -> str:
    """Of the images and labels of a whole split."""
    return tensor_hash(dataset.images, dataset.labels)


def make_witnesses(
    model: Model,
    x: Tensor,
    y: Tensor,
    x_adv: Tensor,
    *,
    norm: Norm,
    eps: float,
    index: Tensor | None = None,
    data: DataSource | None = None,
    execution: Execution | None = None,
) -> Witnesses:
    """Keep those of `x_adv` that are witnesses: inside the box and the ball, and wrong in float32 and float64.

    Args:
        model: images (N, ...) to logits (N, K).
        x: (N, ...) originals, float in [0, 1].
        y: (N,) true classes.
        x_adv: (N, ...) candidates, float or uint8.
        norm: "Linf" or "L2".
        eps: radius of the ball.
        index: (N,) places in the data; None: 0 ... N - 1.
        data: where the originals can be found again; None puts them into the file.
        execution: batch size.

    Example:
        >>> model = torch.nn.Linear(2, 2, bias=False)
        >>> model.weight.data = torch.eye(2)
        >>> x, x_adv = torch.tensor([[0.6, 0.5], [0.9, 0.1]]), torch.tensor([[0.5, 0.6], [0.8, 0.2]])
        >>> witnesses = make_witnesses(model, x, torch.tensor([0, 0]), x_adv, norm="Linf", eps=0.2)
        >>> witnesses.index.tolist(), witnesses.norms
        ([0], tensor([0.1000], dtype=torch.float64))
    """
    check_ball(eps, norm)
    check_examples(x, y)
    if x_adv.shape != x.shape:
        raise ValueError(f"Expected `x_adv` to have the shape of `x`, {tuple(x.shape)}, but got {tuple(x_adv.shape)}.")
    places = torch.arange(len(x)) if index is None else index.cpu()
    found = look_at(model, from_bytes(x_adv), x, y, norm, eps, execution)
    kept = found.inside & found.wrong
    return Witnesses(
        x_adv.cpu()[kept],
        places[kept],
        y.cpu()[kept],
        norm,
        eps,
        found.norms[kept],
        found.margins[kept],
        model_hash(model),
        data,
        None if data else x.cpu()[kept],
    )


def witnesses_of(
    evaluation: Evaluation,
    model: Model,
    x: Tensor,
    y: Tensor,
    *,
    norm: Norm,
    eps: float,
    data: DataSource | None = None,
    execution: Execution | None = None,
) -> Witnesses:
    """The witnesses in an evaluation that keeps its examples: of each example the nearest one that fools.

    The clean image itself is the witness where the model gets it wrong.
    """
    best, nearest = x.cpu().clone(), torch.where(evaluation.clean, float("inf"), 0.0).double()
    for outcome in evaluation.outcomes:
        if outcome.x_adv is None or outcome.linf is None or outcome.l2 is None:
            raise ValueError("Expected an evaluation that keeps its examples: use keep_examples=True.")
        size = outcome.linf if norm == "Linf" else outcome.l2
        nearer = ~outcome.robust & (size < nearest)
        best[nearer], nearest[nearer] = from_bytes(outcome.x_adv)[nearer].to(best), size[nearer]
    found = nearest.isfinite()
    return make_witnesses(
        model,
        x[found.to(x.device)],
        y[found.to(y.device)],
        best[found].to(x),
        norm=norm,
        eps=eps,
        index=evaluation.index[found],
        data=data,
        execution=execution,
    )


def load_witnesses(path: Path | str) -> Witnesses:
    """Read what `Witnesses.save` wrote; shapes and types are checked, claims are not."""
    from safetensors import SafetensorError, safe_open

    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected witnesses in {path}, but there is no such file.")
    try:
        with safe_open(path, "pt") as content:
            about: Any = json.loads((content.metadata() or {}).get("pclc", "{}"))
            tensors = {name: content.get_tensor(name) for name in content.keys()}  # noqa: SIM118 (no mapping)
    except (SafetensorError, ValueError) as error:
        raise ValueError(
            f"Expected {path} to be a safetensors file of witnesses, but it cannot be read: {error}."
        ) from error
    if not isinstance(about, dict) or (about.get("format"), about.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"Expected {path} to hold witnesses ({FORMAT}, version {VERSION}), but it does not.")
    missing = {"examples", "index", "labels", "norms", "margins"} - tensors.keys()
    if missing:
        raise ValueError(f"Expected {path} to hold {', '.join(sorted(missing))}, but it does not.")
    data, examples = about.get("data"), tensors["examples"]
    check_ball(about.get("eps"), about.get("norm"))
    if examples.dtype not in (torch.uint8, torch.float32, torch.float64):
        raise ValueError(f"Expected `examples` in {path} to be uint8, float32 or float64, but got {examples.dtype}.")
    if data is not None and not _names_a_data_set(data):
        raise ValueError(f"Expected `data` in {path} to be null, or texts for name, split and hash, but got {data!r}.")
    expected = {"index": torch.int64, "labels": torch.int64, "norms": torch.float64, "margins": torch.float64}
    for name, dtype in expected.items():
        if tensors[name].dtype != dtype or tensors[name].shape != examples.shape[:1]:
            raise ValueError(f"Expected `{name}` in {path} to be {dtype} with one number for each example.")
    if "originals" in tensors and tensors["originals"].shape != examples.shape:
        raise ValueError(f"Expected `originals` in {path} to have the shape of `examples`.")
    return Witnesses(
        examples,
        tensors["index"],
        tensors["labels"],
        about["norm"],
        about["eps"],
        tensors["norms"],
        tensors["margins"],
        about.get("model_hash"),
        DataSource(**data) if data else None,
        tensors.get("originals"),
    )


def _names_a_data_set(data: object) -> bool:
    if not isinstance(data, dict) or data.keys() != set(DataSource._fields):
        return False
    return all(isinstance(text, str) for text in data.values())
