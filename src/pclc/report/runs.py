"""What a report is made of: the result files of run directories, and nothing else."""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pclc.analysis.inspection import load_inspection
from pclc.attacks.types import Norm
from pclc.evaluation import Evaluation, load_evaluation
from pclc.evaluation.audit.document import FILE as AUDIT
from pclc.evaluation.audit.document import load_document
from pclc.hashes import model_hash
from pclc.models import load_model
from pclc.training import RunDirectory

Budget = tuple[Norm, float]
_FILES = ("config.json", "evaluation.json", AUDIT, "inspection.json")


@dataclass(frozen=True, eq=False)
class Run:
    """One run directory, read; what it does not hold is None.

    Attributes:
        name: of the folder, with as many of its parents as it takes to tell it from the others.
        path: as it was given.
        config: the whole of `config.json`.
        metrics: an entry for each epoch.
        training: `training.json`.
        evaluation: `evaluation.json`.
        audit: `audit.json`.
        inspection: `inspection.json`.
        holds_model: the folder is that of a finished training or of a saved model, and not one of results alone.
        notes: sentences about what was left out or could not be checked.
    """

    name: str
    path: Path
    config: dict[str, Any] | None = None
    metrics: tuple[dict[str, Any], ...] = ()
    training: dict[str, Any] | None = None
    evaluation: Evaluation | None = None
    audit: dict[str, Any] | None = None
    inspection: dict[str, Any] | None = None
    holds_model: bool = False
    notes: tuple[str, ...] = ()

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        """The conditions of each result that it holds: "evaluation", "audit", "inspection"."""
        named = {
            "evaluation": None if self.evaluation is None else vars(self.evaluation.conditions),
            "audit": None if self.audit is None else self.audit["conditions"],
            "inspection": None if self.inspection is None else self.inspection["conditions"],
        }
        return {name: conditions for name, conditions in named.items() if conditions is not None}

    @property
    def dataset(self) -> str | None:
        """Name of the data set that it was trained on, or else of the one that it was measured on."""
        if self.config is not None:
            return str(self.config["run"]["dataset"]["name"])
        return next((about["data"].partition(",")[0] for about in self.conditions.values()), None)

    @property
    def budgets(self) -> list[tuple[Norm | None, float | None]]:
        """(norm, eps) of the attacks and of the audit."""
        about = self.audit["conditions"] if self.audit is not None else None
        return [
            *(self.evaluation.budgets if self.evaluation is not None else ()),
            *([(about["norm"], about["eps"])] if about is not None else []),
        ]

    def own(self, budget: Budget | None) -> Budget | None:
        """This budget as the evaluation has it, None where it does not: 0.1 + 0.2 is meant to be 0.3."""
        budgets = self.evaluation.budgets if self.evaluation is not None and budget is not None else ()
        return next((own for own in budgets if is_same(own, budget)), None)  # type: ignore[return-value]


def is_same(one: tuple[Norm | None, float | None], other: Budget | None) -> bool:
    """Whether two budgets are one, up to rounding."""
    return other is not None and one[0] == other[0] and one[1] is not None and math.isclose(one[1], other[1])


def load_runs(paths: Iterable[Path | str], *, trust_factory: bool = False) -> list[Run]:
    """Read run directories; a folder that holds no result but run directories stands for all of these.

    Results of another model than the one in their folder are left out, with a note. `trust_factory` lets a folder name
    `package.module:factory`, which is imported to compare the models.

    Example:
        >>> load_runs(["no/such/folder"])
        Traceback (most recent call last):
        ...
        FileNotFoundError: Expected a run directory, but there is no folder no/such/folder.
    """
    folders = [folder for path in paths for folder in _run_folders(Path(path))]
    resolved = [folder.resolve() for folder in folders]
    twice = next((folder for i, folder in enumerate(folders) if resolved[i] in resolved[:i]), None)
    if twice is not None:
        raise ValueError(f"Expected every run directory once, but {twice} was given twice.")
    if not folders:
        raise ValueError("Expected at least one run directory, but got none.")
    names = _names(resolved)
    return [
        replace(_unusual(_own(_read(folder), trust_factory)), name=name)
        for folder, name in zip(folders, names, strict=True)
    ]


def _run_folders(path: Path) -> list[Path]:
    if not path.is_dir():
        raise FileNotFoundError(f"Expected a run directory, but there is no folder {path}.")
    if _is_run(path):
        return [path]
    inside = sorted(folder for folder in path.iterdir() if folder.is_dir() and _is_run(folder))
    if not inside:
        raise FileNotFoundError(
            f"Expected {path} to hold one of {', '.join(_FILES)}, or run directories that do, but it does not."
        )
    return inside


def _is_run(path: Path) -> bool:
    return any((path / name).is_file() for name in _FILES)


def _read(path: Path) -> Run:
    run = Run(path.name, path, holds_model=any((path / name).is_file() for name in ("training.json", "model.json")))
    if (path / "config.json").is_file():
        directory = RunDirectory(path)
        run = replace(
            run,
            config={"run": directory.config} | json.loads((path / "config.json").read_bytes()),
            metrics=tuple(directory.metrics),
            training=directory.result if directory.finished else None,
        )
    if (path / "evaluation.json").is_file():
        run = replace(run, evaluation=load_evaluation(path))
    if (path / AUDIT).is_file():
        run = replace(run, audit=load_document(path))
    if (path / "inspection.json").is_file():
        run = replace(run, inspection=load_inspection(path))
    return run


def _unusual(run: Run) -> Run:
    """The run with notes on figures that are not what readers take them for: those of the test images as floats."""
    notes = []
    for name, conditions in run.conditions.items():
        dataset, _, split = conditions["data"].rpartition(", ")
        own = run.dataset or dataset
        if split == "train" or (split == "test" and dataset != own):
            notes.append(f"{name}.json is about {conditions['data']}, not about the test images of {own}.")
        if conditions.get("eight_bit"):
            notes.append(f"{name}.json is about adversarial images rounded to 8 bits.")
    return replace(run, notes=(*run.notes, *notes))


def _own(run: Run, trust_factory: bool) -> Run:
    """The run without results of other models, which `--out` may have put into its folder."""
    about = run.conditions
    if not about or not all((run.path / name).is_file() for name in ("model.json", "model.safetensors")):
        return run
    try:
        own = model_hash(load_model(run.path, trust_factory=trust_factory))
    except ValueError as error:  # a factory that is not trusted, or files that do not fit
        return replace(run, notes=(f"Its results could not be checked against the model in its folder: {error}",))
    foreign, notes = [], []
    for name, conditions in about.items():
        if conditions["model_hash"] is None:
            notes.append(f"{name}.json is about a function without weights, which may not be the model in the folder.")
        elif conditions["model_hash"] != own:
            foreign.append(name)
            notes.append(
                f"{name}.json is left out, because it is about another model ({conditions.get('model', 'unnamed')}, "
                f"hash {conditions['model_hash']}) than the one in the folder (hash {own})."
            )
    return replace(run, **dict.fromkeys(foreign), notes=tuple(notes))  # type: ignore[arg-type]


def _names(folders: Sequence[Path]) -> list[str]:
    """The shortest ends of the paths that differ."""
    for depth in range(1, max(len(folder.parts) for folder in folders) + 1):
        names = ["/".join(folder.parts[-depth:]) for folder in folders]
        if len(set(names)) == len(names):
            return names
    return [str(folder) for folder in folders]
