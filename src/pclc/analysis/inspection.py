"""One model looked at from all sides under one attack: images, confusions, gaps, ranks and t-SNE, as a file."""

import base64
import json
import platform
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pclc.analysis.confusion import confusion
from pclc.analysis.embedding import EmbeddingResult, embed_model
from pclc.analysis.gaps import gap_summary
from pclc.analysis.outputs import attacked, has_features, logits_of
from pclc.analysis.ranks import ranks_over_eps
from pclc.attacks import Attack
from pclc.evaluation.budget import distances
from pclc.execution import Execution
from pclc.files import write_atomically
from pclc.hashes import model_hash, tensor_hash
from pclc.version import __version__

FILE = "inspection.json"
FORMAT = "pclc-inspection"
VERSION = 1

_IMAGES = 8
_FEWEST_POINTS = 4  # that t-SNE takes
_MOST_POINTS = 500  # clean images in the plane: t-SNE takes seconds for these, minutes for ten times as many


def inspect_model(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    classes: Sequence[str],
    attack: Attack,
    over_eps: Sequence[Attack] = (),
    *,
    seed: int = 0,
    data_name: str = "the given images",
    execution: Execution | None = None,
) -> dict[str, Any]:
    """Look at what an attack does to a model.

    Args:
        model: images to logits; t-SNE needs its `features(x)` and four images, and is left out without them.
        x: (N, C, H, W) in [0, 1].
        y: (N,) true classes.
        classes: their names.
        attack: of the images, the confusions, the gaps and t-SNE.
        over_eps: one kind of attack with an ascending eps, for misclassification ranks.
        seed: of the attacks and of t-SNE.
        data_name: what the data are called.
        execution: how it runs.

    Returns:
        What `inspection.json` holds: plain lists and numbers. Images are bytes in base64, rounded for display; the
        sizes of perturbations are those of the images as they were made.

    Example:
        >>> from pclc.attacks import FGSM
        >>> x, y = torch.rand(8, 1, 2, 2), torch.zeros(8, dtype=torch.int64)
        >>> found = inspect_model(nn.Flatten(), x, y, ("a", "b", "c", "d"), FGSM(eps=0.1))
        >>> found["n"], found["embedding"] is None, [table["name"] for table in found["confusion"]]
        (8, True, ['clean', 'fgsm(eps=0.1)'])
    """
    names = tuple(classes)
    x_adv = attacked(model, attack, x, y, seed, execution)
    before, after = logits_of(model, x, execution), logits_of(model, x_adv, execution)
    turned = (before.argmax(1) == y) & (after.argmax(1) != y)
    shown = _first_of_each_class(turned, y)
    linf, l2 = distances(x_adv, x)
    grid = [(float(attack.eps), attack) for attack in over_eps]  # type: ignore[attr-defined]
    ranks = ranks_over_eps(model, x, y, grid[0][1].name, grid, seed, execution) if grid else None
    return {
        "format": FORMAT,
        "version": VERSION,
        "attack": str(attack),
        "eps": getattr(attack, "eps", None),
        "norm": getattr(attack, "norm", None),
        "seed": seed,
        "n": len(x),
        "turned": int(turned.sum()),
        "classes": list(names),
        "conditions": {
            "model_hash": model_hash(model),
            "data": data_name,
            "data_hash": tensor_hash(x, y),
            "device": str(x.device),
            "versions": {"pclc": __version__, "torch": torch.__version__, "python": platform.python_version()},
        },
        "shape": list(x.shape[1:]),
        "examples": [
            {
                "index": i,
                "label": int(y[i]),
                "clean": _bytes(x[i]),
                "adversarial": _bytes(x_adv[i]),
                "perturbation": _bytes(_grey_at_zero(x_adv[i] - x[i])),
                "linf": float(linf[i]),
                "l2": float(l2[i]),
                "before": before[i].double().softmax(0).tolist(),
                "after": after[i].double().softmax(0).tolist(),
            }
            for i in shown
        ],
        "confusion": [
            asdict(confusion(name, y, logits.argmax(1), names))
            for name, logits in (("clean", before), (str(attack), after))
        ],
        "gaps": [gap_summary("clean", before, y).row(), gap_summary(str(attack), after, y).row()],
        "ranks": None if ranks is None else asdict(ranks),
        "embedding": _embedding(model, x, y, names, attack, seed, execution) if len(x) >= _FEWEST_POINTS else None,
    }


def save_inspection(found: dict[str, Any], out: Path | str) -> Path:
    """Write `inspection.json` into the folder `out`, whole or not at all."""
    path = Path(out)
    path.mkdir(parents=True, exist_ok=True)
    write_atomically(path / FILE, (json.dumps(found) + "\n").encode())
    return path / FILE


def load_inspection(path: Path | str) -> dict[str, Any]:
    """Read `inspection.json`, or the one in a folder."""
    file = Path(path) / FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"Expected an inspection in {file}, but there is no such file.")
    try:
        content = json.loads(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"Expected {file} to be JSON, but it cannot be read: {error}.") from error
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"Expected {file} to hold an inspection ({FORMAT}, version {VERSION}), but it does not.")
    return content


def _first_of_each_class(turned: Tensor, y: Tensor) -> list[int]:
    """The first turned example of each class, at most eight; nothing is picked for its looks."""
    first: dict[int, int] = {}
    for i in turned.nonzero().flatten().tolist():
        first.setdefault(int(y[i]), i)
    return [first[label] for label in sorted(first)][:_IMAGES]


def _grey_at_zero(delta: Tensor) -> Tensor:
    """A perturbation in [0, 1], its largest change at one of the ends and none at the middle."""
    largest = float(delta.abs().max()) or 1.0
    return 0.5 + delta / (2 * largest)


def _bytes(image: Tensor) -> str:
    return base64.b64encode((image * 255).round().clamp(0, 255).to(torch.uint8).cpu().numpy().tobytes()).decode()


def _embedding(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    classes: tuple[str, ...],
    attack: Attack,
    seed: int,
    execution: Execution | None,
) -> dict[str, Any] | None:
    if not has_features(model):
        return None
    some = slice(0, _MOST_POINTS)
    found: EmbeddingResult = embed_model(model, x[some], y[some], classes, str(attack), attack, seed, execution)
    return {
        "name": found.name,
        "points": found.points.round(2).tolist(),
        "labels": found.labels.tolist(),
        "predictions": found.predictions.tolist(),
        "successful_attack": found.successful_attack.tolist(),
        "overlap": found.overlap,
    }
