"""An audit as JSON."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pclc.evaluation.audit.result import Audit
from pclc.evaluation.audit.verdict import ALPHA, LEAST, LINE

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
