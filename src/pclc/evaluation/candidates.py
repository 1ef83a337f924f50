"""What can be seen of adversarial examples: whether they are inside, and whether they fool in both precisions."""

import copy
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from pclc.attacks.frozen import frozen
from pclc.attacks.inputs import explain_types
from pclc.attacks.types import Model, Norm
from pclc.attacks.victim import Victim, is_success
from pclc.evaluation.budget import by_row, distances, is_inside
from pclc.evaluation.device import device_of
from pclc.execution import Execution, ieee_fp32, in_batches


class Findings(NamedTuple):
    """What was seen of candidates, on the CPU."""

    inside: Tensor
    wrong_single: Tensor
    wrong_double: Tensor | None
    norms: Tensor
    margins: Tensor

    @property
    def wrong(self) -> Tensor:
        """Wrong in both precisions; where the model has no float64, in float32."""
        return self.wrong_single if self.wrong_double is None else self.wrong_single & self.wrong_double


def look_at(
    model: Model, x_adv: Tensor, x: Tensor, y: Tensor, norm: Norm, eps: float, execution: Execution | None
) -> Findings:
    """Look at candidates x_adv around x, both float; y are the true classes."""
    device = device_of(model, x)
    x_adv, x, y = x_adv.to(device), x.to(device), y.to(device)
    inside = is_inside(x_adv, x, norm, eps)
    norms = distances(x_adv, x)[0 if norm == "Linf" else 1]
    # What is not even in the box is not shown to the model.
    shown = by_row(inside, x_adv, x)
    if not len(x):
        return Findings(inside.cpu(), inside.cpu(), inside.cpu(), norms.cpu(), norms.cpu())
    settings = (execution or Execution()).for_attacks(device)
    # Near ties are not left to float64 here: whoever checks a witness in float32 is to see it fool.
    with (
        torch.inference_mode(False),
        torch.no_grad(),
        frozen(model),
        Victim(model, settings) as victim,
        explain_types(model, shown),
    ):
        logits = victim.exact_logits(shown.clone())
    classes = logits.shape[1]
    if y.min() < 0 or y.max() >= classes:  # what is no class is never predicted
        raise ValueError(
            f"Expected every label to lie in [0, {classes - 1}], because the model has {classes} classes, "
            f"but got labels from {y.min().item()} to {y.max().item()}."
        )
    single = is_success(logits, y, targeted=False) & inside
    exact = _double_logits(model, shown, settings)
    if exact is None:
        margins = torch.full_like(norms, float("nan"))
        return Findings(inside.cpu(), single.cpu(), None, norms.cpu(), margins.cpu())
    double = is_success(exact, y, targeted=False) & inside
    true = exact.gather(1, y[:, None]).squeeze(1)
    margins = exact.scatter(1, y[:, None], float("-inf")).amax(1) - true
    return Findings(inside.cpu(), single.cpu(), double.cpu(), norms.cpu(), margins.cpu())


@torch.no_grad()
def _double_logits(model: Model, x: Tensor, execution: Execution) -> Tensor | None:
    """The logits of a float64 twin; None where the model cannot be copied, or insists on another type."""
    try:
        twin: Callable[[Tensor], Tensor] = copy.deepcopy(model).double() if isinstance(model, nn.Module) else model
        with ieee_fp32(), frozen(twin):
            logits = in_batches(twin, x.double(), size=execution.resolved_batch_size)
    except Exception:  # whatever a stranger's module raises
        return None
    return logits if logits.dtype == torch.float64 else None
