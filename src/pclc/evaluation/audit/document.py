"""An audit as JSON."""

from dataclasses import asdict
from typing import Any

from pclc.evaluation.audit.result import Audit
from pclc.evaluation.audit.verdict import ALPHA, LEAST, LINE

FILE = "audit.json"
WITNESSES = "witnesses.safetensors"
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
