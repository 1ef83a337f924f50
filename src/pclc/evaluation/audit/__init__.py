"""The audit: a verdict on a claim of robustness, with witnesses, and checks of the attacks behind it."""

from pclc.evaluation.audit.audit import audit
from pclc.evaluation.audit.document import save_audit
from pclc.evaluation.audit.finding import CHECKS, Check, Finding
from pclc.evaluation.audit.result import Audit, Conditions, Gradient
from pclc.evaluation.audit.scene import Scene
from pclc.evaluation.audit.shares import Share
from pclc.evaluation.audit.verdict import LEAST, LINE, Overstatement

__all__ = [
    "CHECKS",
    "LEAST",
    "LINE",
    "Audit",
    "Check",
    "Conditions",
    "Finding",
    "Gradient",
    "Overstatement",
    "Scene",
    "Share",
    "audit",
    "save_audit",
]
