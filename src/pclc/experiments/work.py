"""A cell from beginning to end: train, attack, analyse, keep. Killed anywhere, the same call goes on."""

import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pclc.attacks import Attack, Transfer, UnreachableWarning, ZeroGradientWarning
from pclc.attacks.types import Norm
from pclc.data import Dataset, load_dataset
from pclc.data.split import split_validation
from pclc.evaluation import Evaluation, SetupWarning, evaluate
from pclc.evaluation.audit import audit
from pclc.evaluation.audit import document as audit_document
from pclc.evaluation.document import to_document
from pclc.execution import Execution
from pclc.experiments.analyses import analyse
from pclc.experiments.code import code_hash
from pclc.experiments.experiment import Cell
from pclc.experiments.groups import NamedAttack
from pclc.experiments.store import DamagedWarning, Store
from pclc.experiments.trained import BusyError, Trained, hold_model, trained_model

# What a result keeps of an audit; all of it is in a file of its own.
_AUDITED = ("verdict", "reason", "claimed", "clean", "robust_accuracy", "overstatement")


@dataclass(frozen=True)
class Job:
    """A cell and where and how it is done; it travels to the process that does it.

    Attributes:
        cell: what is to be done.
        store: folder of the results.
        execution: how it runs.
        root: folder with the data sets.
        threads: of torch on the CPU, where sums depend on their number in the last bits.
    """

    cell: Cell
    store: Path
    execution: Execution
    root: Path | None = None
    threads: int = 1


def do_job(job: Job) -> str:
    """Do a job: "done", or "busy" where another process works on something that it needs."""
    before = torch.get_num_threads()
    torch.set_num_threads(job.threads)
    try:
        run_cell(Store(job.store), job.cell, job.execution, job.root)
    except BusyError:
        return "busy"
    finally:
        torch.set_num_threads(before)
    return "done"


def run_cell(store: Store, cell: Cell, execution: Execution, root: Path | None = None) -> dict[str, Any]:
    """What a cell gives, computed where the store does not have it.

    Raises:
        BusyError: another process works on the cell or on one of its models.
    """
    with store.lock(cell) as held:
        if not held:
            raise BusyError(f"The cell {cell.hash} is being computed by another process.")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DamagedWarning)  # said by whoever planned this
            result = store.load(cell)
        if result is None:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                content, details = _compute(store, cell, execution, root)
            # What an evaluation notices of its set-up and of its gradients is in its own notes, and budgets that cannot
            # reach eps are meant: they are what the paper states.
            known = SetupWarning, ZeroGradientWarning, UnreachableWarning, DeprecationWarning
            texts = dict.fromkeys(str(entry.message) for entry in caught if not issubclass(entry.category, known))
            # Results may travel: nobody needs to know in which folder they were made.
            told = [text.replace(f"{store.path}/", "") for text in (*content["warnings"], *texts)]
            store.save(cell, {**content, "warnings": told}, details)
            result = store.load(cell)
            assert result is not None
        return result


def _compute(
    store: Store, cell: Cell, execution: Execution, root: Path | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    with hold_model(store, cell.training, execution, root) as trained:
        if cell.substitute is None or cell.substitute == cell.training:
            return _measure(store, cell, trained, trained, execution, root)
        substitute = trained_model(store, cell.substitute, execution, root)
        return _measure(store, cell, trained, substitute, execution, root)


def _measure(
    store: Store, cell: Cell, trained: Trained, substitute: Trained, execution: Execution, root: Path | None
) -> tuple[dict[str, Any], dict[str, Any]]:
    data = data_of(cell, root)
    # Shared by the cells of a model, so that an attack that occurs in several tables runs once.
    parts = store.model_folder(cell.training) / cell.attacks_folder
    x, y = data.images.float() / 255, data.labels
    attacks = distinct(cell.attacks)
    evaluation = evaluate(
        trained.model,
        x,
        y,
        [_ready(attack, substitute.model) for attack in attacks],
        seed=cell.training.config.seed,
        out=parts,
        execution=replace(execution, precision=cell.precision) if cell.precision else execution,
        model_name=f"{cell.training.model}, {cell.training.config.loss}, training {cell.training.hash}",
        data_name=f"{data.name}, {data.split}" + (f", first {cell.examples}" if cell.examples else ""),
    )
    started = time.perf_counter()
    device = execution.torch_device
    analyses = [
        analyse(analysis, trained.model, x.to(device), y.to(device), data.classes, cell.training.config.seed, execution)
        for analysis in cell.analyses
    ]
    seconds = {
        "training": trained.about["seconds"] + trained.about["setup_seconds"],
        "evaluation": sum(outcome.seconds for outcome in evaluation.outcomes),
        "analyses": time.perf_counter() - started,
    }
    content = {
        "n": evaluation.n,
        "clean": evaluation.clean_accuracy.correct,
        "attacks": _attack_rows(attacks, evaluation),
        "worst_case": [
            {"norm": norm, "eps": eps, "correct": evaluation.worst_case(norm, eps).correct}
            for norm, eps in _budgets(evaluation)
        ],
        "training": trained.about,
        "substitute": substitute.about if cell.substitute else None,
        "conditions": asdict(evaluation.conditions),
        "code": code_hash(),
        "warnings": list(evaluation.notes),
        "seconds": seconds,
    }
    details: dict[str, Any] = {"evaluation": to_document(evaluation), "analyses": analyses}
    if cell.audit is not None:
        details["audit"] = _audited(cell, trained, data, execution)
        content["audit"] = {name: details["audit"][name] for name in _AUDITED} | {
            "fired": [check["name"] for check in details["audit"]["checks"] if check["state"] == "fired"]
        }
        seconds["audit"] = details["audit"]["seconds"]
    return content, details


def _audited(cell: Cell, trained: Trained, data: Dataset, execution: Execution) -> dict[str, Any]:
    """The audit that a cell asks for, as JSON; its witnesses, which are images, are not kept."""
    assert cell.audit is not None
    some = slice(cell.audit.examples)
    found = audit(
        trained.model,
        data.images[some].float() / 255,
        data.labels[some],
        eps=cell.audit.eps,
        mode=cell.audit.mode,
        seed=cell.training.config.seed,
        loss=cell.training.config.loss,
        execution=execution,
        model_name=f"{cell.training.model}, training {cell.training.hash}",
        data_name=f"{data.name}, {data.split}",
    )
    return audit_document.to_document(found)


def data_of(cell: Cell, root: Path | None) -> Dataset:
    """The images that a cell is measured on."""
    if cell.split == "validation":
        train = load_dataset(cell.training.dataset, "train", root)
        data = split_validation(train, cell.training.config.validation)[1]
    else:
        data = load_dataset(cell.training.dataset, cell.split, root)
    if cell.examples is None:
        return data
    if cell.examples > len(data):
        raise ValueError(f"Expected `examples` to be at most {len(data)}, as {data} has, but got {cell.examples}.")
    return data.subset(torch.arange(cell.examples))


def distinct(attacks: Sequence[NamedAttack]) -> list[NamedAttack]:
    """Each attack once, whatever its names."""
    return list({(attack.text, attack.transfer): attack for attack in attacks}.values())


def _ready(named: NamedAttack, substitute: torch.nn.Module) -> Attack:
    attack = named.attack
    return Transfer(attack, substitute, stop=attack.stop) if named.transfer else attack


def _budgets(evaluation: Evaluation) -> list[tuple[Norm | None, float | None]]:
    """The balls that occur, the smallest first, and at the end everything together."""
    balls = [(norm, eps) for norm, eps in evaluation.budgets if norm is not None and eps is not None]
    return [*sorted(balls), (None, None)]


def _attack_rows(attacks: Sequence[NamedAttack], evaluation: Evaluation) -> list[dict[str, Any]]:
    numbers = "norm", "eps", "forwards", "backwards", "seconds", "outside", "zero_gradient_share"
    return [
        {
            "attack": attack.text,
            "transfer": attack.transfer,
            "correct": outcome.accuracy.correct,
            **{name: getattr(outcome, name) for name in numbers},
        }
        for attack, outcome in zip(attacks, evaluation.outcomes, strict=True)
    ]
