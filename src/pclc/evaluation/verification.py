"""The check of witnesses: everything is computed again, from the model and from the original images."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from pclc.attacks.frozen import frozen
from pclc.attacks.suspicions import is_random
from pclc.attacks.types import Model
from pclc.attacks.victim import Victim
from pclc.data import load_dataset
from pclc.evaluation.budget import from_bytes
from pclc.evaluation.candidates import look_at
from pclc.evaluation.device import device_of
from pclc.evaluation.witnesses import Witnesses, dataset_hash, load_witnesses
from pclc.execution import Execution
from pclc.hashes import model_hash

_LOOKED_AT = 8  # examples that are shown over and over, to see whether the model is random


class Check(NamedTuple):
    """One thing that was checked: whether it holds, None where it could not be told, and what was found in words."""

    name: str
    holds: bool | None
    sentence: str


@dataclass(frozen=True, eq=False)
class Verification:
    """What holds of witnesses, and what does not.

    Attributes:
        verified: (M,) flags: in the box, in the ball around the original, with its label, and wrong in float32 and
            float64. A place that occurs again counts once.
        checks: what was checked.
        norms, margins: (M,) float64, as computed here.
        trusted_originals: the originals came from the data, not from the file that is to be checked.
    """

    verified: Tensor
    checks: tuple[Check, ...]
    norms: Tensor
    margins: Tensor
    trusted_originals: bool

    @property
    def holds(self) -> bool:
        """Whether all examples are verified, against originals that do not come from the file itself."""
        return bool(self.verified.all()) and self.trusted_originals and len(self.verified) > 0

    @property
    def count(self) -> int:
        """Number of verified examples."""
        return int(self.verified.sum())

    def __str__(self) -> str:
        lines = [f"{_word(check)}: {check.sentence}" for check in self.checks]
        return "\n".join([*lines, f"{self.count} of {len(self.verified)} witnesses are verified."])


def _word(check: Check) -> str:
    if check.holds is None:
        return "unknown"
    # What the file says of itself decides nothing: its examples fool this model, whatever it was called.
    return "holds" if check.holds else "differs" if check.name in ("data", "norms", "margins", "model") else "FAILS"


def verify(
    witnesses: Witnesses | Path | str,
    model: Model,
    x: Tensor | None = None,
    y: Tensor | None = None,
    *,
    root: Path | str | None = None,
    execution: Execution | None = None,
) -> Verification:
    """Check witnesses with one forward pass in float32 and one in float64, without trusting anything in the file.

    Args:
        witnesses: them, or their file.
        model: the model that they are said to fool.
        x: the data's images, all of them, float in [0, 1] or uint8: witness i belongs to x[index[i]]. None: the data
            set that the witnesses name is loaded; where they name none, the originals in the file are all there is.
        y: the data's labels, with `x`.
        root: folder with the data sets.
        execution: batch size.
    """
    if not isinstance(witnesses, Witnesses):
        witnesses = load_witnesses(witnesses)
    if (x is None) != (y is None):
        raise ValueError("Expected `x` and `y` together, but got only one of them.")
    if x is not None and y is not None and (not len(x) or len(x) != len(y)):
        raise ValueError(f"Expected `x` and `y` to be all of the data, but got {len(x)} images and {len(y)} labels.")
    checks: list[Check] = []
    trusted = True
    known = torch.ones(len(witnesses), dtype=torch.bool)
    if x is None and witnesses.data is not None:
        source = witnesses.data
        dataset = load_dataset(source.name, source.split, root)
        same = dataset_hash(dataset) == source.hash
        checks.append(
            Check("data", same, f"{source.name}, {source.split}, {'is' if same else 'is NOT'} the data set named.")
        )
        x, y = dataset.images, dataset.labels
    if x is not None and y is not None:
        known = (witnesses.index >= 0) & (witnesses.index < len(x))
        places = witnesses.index.clamp(0, len(x) - 1)
        originals, labels = from_bytes(x.cpu()[places]), y.cpu()[places]
        if originals.shape != witnesses.examples.shape:
            raise ValueError(
                f"Expected witnesses of the shape of the images, {tuple(originals.shape[1:])}, "
                f"but got {tuple(witnesses.examples.shape[1:])}."
            )
        right = known & (labels == witnesses.labels)
        checks.append(_count("labels", right, "have the label of their original in the data"))
        labels = labels.long()  # files of data sets hold bytes
    elif witnesses.originals is not None:
        trusted, right = False, known
        originals, labels = from_bytes(witnesses.originals), witnesses.labels
        checks.append(
            Check("originals", None, "The originals and labels come from the file itself: give the data to check them.")
        )
    else:
        raise ValueError("Expected `x` and `y`, because the witnesses name no data set and hold no originals.")
    first = _first_occurrences(witnesses.index)
    checks.append(_count("distinct", first, "belong to an original of their own"))
    found = look_at(model, from_bytes(witnesses.examples), originals, labels, witnesses.norm, witnesses.eps, execution)
    largest = float(found.norms.max()) if len(witnesses) else 0.0
    budget = f"{witnesses.norm} ball of {witnesses.eps:.6g} and in the box (largest {largest:.6g})"
    checks += [
        _count("ball", found.inside, f"are in the {budget}"),
        _count("float32", found.wrong_single, "are classified wrongly in float32"),
        Check("float64", None, "The model cannot run in float64.")
        if found.wrong_double is None
        else _count("float64", found.wrong_double, "are classified wrongly in float64"),
        _stated("norms", found.norms, witnesses.norms),
        _stated("margins", found.margins, witnesses.margins),
        _same_model(model, witnesses.model_hash),
    ]
    if _is_random(model, witnesses.examples, execution):
        sentence = "The model is random, so other examples fool it in each pass. An audit reports means over draws."
        checks.append(Check("random", None, sentence))
    verified = right & first & found.inside & found.wrong
    return Verification(verified, tuple(checks), found.norms, found.margins, trusted)


def _is_random(model: Model, examples: Tensor, execution: Execution | None) -> bool:
    some = from_bytes(examples[:_LOOKED_AT]).to(device_of(model, examples))
    settings = (execution or Execution()).for_attacks(some.device)
    with torch.no_grad(), frozen(model), Victim(model, settings) as victim:
        return len(some) > 0 and is_random(victim, some)


def _first_occurrences(index: Tensor) -> Tensor:
    seen: set[int] = set()
    flags = []
    for place in index.tolist():
        flags.append(place not in seen)
        seen.add(place)
    return torch.tensor(flags, dtype=torch.bool)


def _count(name: str, flags: Tensor, what: str) -> Check:
    return Check(name, bool(flags.all()), f"{int(flags.sum())} of {len(flags)} {what}.")


def _stated(name: str, found: Tensor, stated: Tensor) -> Check:
    """Whether the file's own figures are true; nothing depends on them."""
    close = torch.isclose(found, stated, rtol=1e-4, atol=1e-6, equal_nan=True)
    return _count(name, close, f"have the {name} that the file states")


def _same_model(model: Model, stated: str | None) -> Check:
    got = model_hash(model)
    if got is None or stated is None:
        return Check("model", None, "The model's hash is not known.")
    words = "is the one" if got == stated else f"is NOT the one (hash {got} instead of {stated})"
    return Check("model", got == stated, f"The model {words} that the file names.")
