"""An evaluation as files: `evaluation.json` (see `schema.json`), and adversarial examples as safetensors."""

import json
import warnings
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pclc.evaluation.result import Accuracy, Conditions, Evaluation, Outcome, Perturbations
from pclc.evaluation.statistics import CONFIDENCE, METHOD
from pclc.evaluation.traps import SetupWarning
from pclc.files import write_atomically

FILE = "evaluation.json"
FORMAT = "pclc-evaluation"
VERSION = 1

_NOT_PLAIN = ("robust", "perturbations", "linf", "l2", "x_adv")
_PLAIN = [field.name for field in fields(Outcome) if field.name not in _NOT_PLAIN]


def to_document(result: Evaluation) -> dict[str, Any]:
    """All but the examples themselves, as JSON has it; flags are texts of 0 and 1, one character an example."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "n": result.n,
        "index": None if _is_plain(result.index) else result.index.tolist(),
        "interval": {"method": METHOD, "confidence": CONFIDENCE},
        "conditions": asdict(result.conditions),
        "clean": {"accuracy": _accuracy(result.clean_accuracy), "correct": _pack(result.clean)},
        "attacks": [_outcome(outcome) for outcome in result.outcomes],
        "worst_case": [
            {"norm": norm, "eps": eps, "accuracy": _accuracy(result.worst_case(norm, eps))}
            for norm, eps in dict.fromkeys([*result.budgets, (None, None)])
        ],
        "warnings": list(result.warnings),
        "notes": list(result.notes),
        "seconds": result.seconds,
    }


def from_document(document: dict[str, Any]) -> Evaluation:
    """The evaluation that a document holds; sizes of single perturbations and examples are not in it."""
    if not isinstance(document, dict) or document.get("format") != FORMAT or document.get("version") != VERSION:
        raise ValueError(f"Expected an evaluation ({FORMAT}, version {VERSION}), but the file holds something else.")
    try:
        n, index = document["n"], document["index"]
        outcomes = tuple(
            Outcome(
                **{name: entry[name] for name in _PLAIN},
                robust=_unpack(entry["robust"], n),
                perturbations=Perturbations(**entry["perturbations"]),
            )
            for entry in document["attacks"]
        )
        result = Evaluation(
            _unpack(document["clean"]["correct"], n),
            torch.arange(n) if index is None else torch.tensor(index),
            outcomes,
            Conditions(**document["conditions"]),
            tuple(document["warnings"]),
            document["seconds"],
        )
        stated, counted = _counts(document), _counts(to_document(result))
    except (KeyError, TypeError) as error:
        raise ValueError(f"Expected a whole evaluation, but the file lacks something: {error}.") from error
    if stated != counted:
        raise ValueError(f"Expected the counts that the examples give, {counted}, but the file states {stated}.")
    return result


def _counts(document: dict[str, Any]) -> list[int]:
    """Of right examples: clean, under each attack, and in each worst case."""
    entries = [document["clean"], *document["attacks"], *document["worst_case"]]
    return [entry["accuracy"]["correct"] for entry in entries]


def tell_what_is_replaced(evaluation: Evaluation, folder: Path | str) -> None:
    """Warn where the evaluation in the folder has attacks that this one has not."""
    try:
        before = load_evaluation(folder)
    except (OSError, ValueError):
        return  # none, or none that can be read
    now = {outcome.attack for outcome in evaluation.outcomes}
    gone = [outcome.attack for outcome in before.outcomes if outcome.attack not in now]
    if gone:
        warnings.warn(
            f"The evaluation in {folder} had other attacks, which are no longer in it: {', '.join(gone)}. Name all "
            "attacks in one call: results that exist are not computed again.",
            SetupWarning,
            stacklevel=4,
        )


def save_evaluation(result: Evaluation, out: Path | str) -> Path:
    """Write `evaluation.json` into the folder `out`, whole or not at all."""
    path = Path(out)
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / FILE, (json.dumps(to_document(result), indent=1) + "\n").encode())
    return path / FILE


def load_evaluation(path: Path | str) -> Evaluation:
    """Read `evaluation.json`, or the one in a folder."""
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"Expected an evaluation in {file}, but there is no such file.")
    try:
        document = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"Expected {file} to be JSON, but it cannot be read: {error}.") from error
    return from_document(document)


def save_examples(result: Evaluation, y: Tensor, out: Path | str) -> list[Path]:
    """Write the adversarial examples of each attack to `adversarial-NUMBER.safetensors`, as numbered in the JSON.

    Tensors: `x_adv` (uint8 where rounded to bytes), `index`, `y`, `fooled`, `linf`, `l2`; the metadata name the attack
    and the hashes of model and data.
    """
    from safetensors.torch import save

    files = []
    for number, outcome in enumerate(result.outcomes):
        if outcome.x_adv is None or outcome.linf is None or outcome.l2 is None:
            raise ValueError("Expected an evaluation that keeps its examples: use keep_examples=True.")
        tensors = {
            "x_adv": outcome.x_adv.contiguous(),
            "index": result.index,
            "y": y.cpu(),
            "fooled": (~outcome.robust).to(torch.uint8),
            "linf": outcome.linf,
            "l2": outcome.l2,
        }
        file = Path(out) / f"adversarial-{number}.safetensors"
        write_atomically(file, save(tensors, metadata={"pclc": _about(result, number)}))
        files.append(file)
    return files


def drop_other_examples(result: Evaluation, out: Path | str) -> None:
    """Remove what `save_examples` wrote of another evaluation: its numbers would now stand for these attacks."""
    from safetensors import SafetensorError, safe_open

    ours = {f"adversarial-{number}.safetensors": _about(result, number) for number in range(len(result.outcomes))}
    for file in Path(out).glob("adversarial-*.safetensors"):
        try:
            with safe_open(file, "pt") as content:
                about = (content.metadata() or {}).get("pclc")
        except (OSError, SafetensorError):  # gone by now, or of somebody else
            continue
        if about is not None and about != ours.get(file.name):
            file.unlink(missing_ok=True)


def _about(result: Evaluation, number: int) -> str:
    outcome = result.outcomes[number]
    return json.dumps({"attack": outcome.attack, "seed": outcome.seed, "conditions": asdict(result.conditions)})


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        **{name: getattr(outcome, name) for name in _PLAIN},
        "accuracy": _accuracy(outcome.accuracy),
        "perturbations": asdict(outcome.perturbations),
        "robust": _pack(outcome.robust),
    }


def _accuracy(accuracy: Accuracy) -> dict[str, Any]:
    return {"value": accuracy.value, **asdict(accuracy)}


def _is_plain(index: Tensor) -> bool:
    return torch.equal(index, torch.arange(len(index)))


def _pack(flags: Tensor) -> str:
    return "".join("01"[flag] for flag in flags.int().tolist())


def _unpack(text: str, n: int) -> Tensor:
    if len(text) != n or set(text) - {"0", "1"}:
        raise ValueError(f"Expected {n} characters 0 or 1, but got {len(text)} of {''.join(sorted(set(text)))!r}.")
    return torch.tensor([character == "1" for character in text])
