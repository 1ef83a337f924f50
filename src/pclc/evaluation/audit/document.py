"""An audit as files."""

import json
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pclc.attacks.attack import number_text
from pclc.evaluation.audit.result import Audit
from pclc.evaluation.audit.verdict import ALPHA, LEAST, LINE
from pclc.evaluation.traps import SetupWarning
from pclc.files import write_atomically

FILE = "audit.json"
WITNESSES = "witnesses.safetensors"
STEPS = "audit-steps"  # folder of what an audit keeps while it goes on
FORMAT = "pclc-audit"
VERSION = 1


def to_document(audit: Audit) -> dict[str, Any]:
    """All but the witnesses' images, with the lines that the verdict was made by."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "verdict": audit.verdict,
        "reason": audit.reason,
        "stated_claim": audit.claimed if isinstance(audit.claimed, float) else None,
        "claimed": None if isinstance(audit.claimed, float) else asdict(audit.claimed),
        "clean": asdict(audit.clean),
        "robust_accuracy": asdict(audit.robust_accuracy),
        "overstatement": asdict(audit.overstatement),
        "lines": {"overstatement": LINE, "points": LEAST, "alpha": ALPHA},
        "gradients": [asdict(gradient) for gradient in audit.gradients],
        "checks": [asdict(finding) for finding in audit.checks],
        "attacks": [asdict(step) for step in audit.steps],
        "witnesses": {"count": len(audit.witnesses), "index": audit.witnesses.index.tolist()},
        "conditions": asdict(audit.conditions),
        "seconds": audit.seconds,
    }


def load_document(folder: Path | str) -> dict[str, Any]:
    """What `audit.json` in a folder holds."""
    path = Path(folder) / FILE
    if not path.is_file():
        raise FileNotFoundError(f"Expected an audit in {path}, but there is no such file.")
    try:
        content = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"Expected {path} to be JSON, but it cannot be read: {error}.") from error
    if not isinstance(content, dict) or (content.get("format"), content.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"Expected {path} to hold an audit ({FORMAT}, version {VERSION}), but it does not.")
    return content


def save_audit(result: Audit, out: Path | str) -> None:
    """Write `audit.json` and `witnesses.safetensors` into the folder `out`."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    _tell_what_is_replaced(result, folder)
    result.witnesses.save(folder / WITNESSES)
    write_atomically(folder / FILE, (json.dumps(to_document(result), indent=1) + "\n").encode())


def _tell_what_is_replaced(result: Audit, folder: Path) -> None:
    try:
        before = load_document(folder)
    except (OSError, ValueError):
        return  # none, or none that can be read
    now = to_document(result)
    held = [_subject(each) for each in (before, now)]
    if held[0] != held[1]:
        _, norm, eps, claim = held[0]
        stated = "" if claim is None else f" of the claim {claim:g}"
        warnings.warn(
            f"The audit{stated} at {norm} eps {number_text(eps)} in {folder} was replaced: use one folder per audit.",
            SetupWarning,
            stacklevel=3,
        )
    elif before["verdict"] == "refuted" != now["verdict"]:
        warnings.warn(
            f"The audit in {folder}, which refuted this claim on {before['clean']['n']} examples, was replaced by one "
            f"on {now['clean']['n']} that does not. Its witnesses are gone.",
            SetupWarning,
            stacklevel=3,
        )


def _subject(document: dict[str, Any]) -> tuple[Any, ...]:
    about = document["conditions"]
    return about["model_hash"], about["norm"], about["eps"], document["stated_claim"]
