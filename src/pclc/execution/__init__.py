"""How something runs: device, precision, compilation, graph capture, batches that fit. The only place that knows."""

from pclc.execution.batches import Batched, in_batches
from pclc.execution.capture import captured
from pclc.execution.ready import leaves_nothing_to_fuse, made_ready
from pclc.execution.settings import Execution, ieee_fp32, is_of_layout, laid_out

__all__ = [
    "Batched",
    "Execution",
    "captured",
    "ieee_fp32",
    "in_batches",
    "is_of_layout",
    "laid_out",
    "leaves_nothing_to_fuse",
    "made_ready",
]
