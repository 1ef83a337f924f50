r"""What an attack makes large: plain functions of logits (N, K) and classes (N,), one value per row, found by name.

Every objective is large where class y is *not* predicted. An untargeted attack maximises it for the true class; a
targeted one minimises it for the target class. A name may carry a logit scale: `"ce*0.01"` is cross-entropy of the
logits times 0.01, which gives gradients back to a model whose softmax is saturated.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pclc.hints import did_you_mean
from pclc.losses import functional as losses

Objective = Callable[[Tensor, Tensor], Tensor]

_OBJECTIVES: dict[str, Objective] = {}
_TARGETED_ONLY = "dlr-targeted"


def register_objective(name: str) -> Callable[[Objective], Objective]:
    """Decorate a function (logits, y) -> values, one per row, and attacks take it as `objective=name`.

    Example:
        >>> @register_objective("true-logit")
        ... def true_logit(logits: Tensor, y: Tensor) -> Tensor:
        ...     return -logits.gather(1, y[:, None]).squeeze(1)
        >>> get_objective("true-logit*2")(torch.tensor([[1.0, 3.0]]), torch.tensor([1]))
        tensor([-6.])
    """
    if not name or "*" in name:
        raise ValueError(f"Expected `name` to be a name without a `*`, but got {name!r}.")
    if name in _OBJECTIVES:
        raise ValueError(f"Expected `name` to be new, but an objective {name!r} is registered already.")

    def register(objective: Objective) -> Objective:
        _OBJECTIVES[name] = objective
        return objective

    return register


def objective_names() -> tuple[str, ...]:
    """Return the names of the registered objectives, sorted."""
    return tuple(sorted(_OBJECTIVES))


def get_objective(name: str) -> Objective:
    """Return the objective of a name, or of a name and a logit scale, `"name*scale"`.

    Half precision is computed in float32.

    Example:
        >>> get_objective("margin*10")(torch.tensor([[1.0, 3.0]]), torch.tensor([1]))
        tensor([-20.])
    """
    if not isinstance(name, str):
        raise ValueError(
            f"Expected `objective` to be a name, which `register_objective` gives to a function, "
            f"but got a {type(name).__name__}."
        )
    base, times, factor = name.partition("*")
    if base not in _OBJECTIVES:
        hint = did_you_mean(base, _OBJECTIVES)
        raise ValueError(f"Expected `objective` to be one of {', '.join(objective_names())}, but got {base!r}.{hint}")
    objective, scale = _OBJECTIVES[base], _scale(factor) if times else 1.0

    def scaled(logits: Tensor, y: Tensor) -> Tensor:
        logits = in_full(logits) * scale  # memory of its own, into which an objective may write
        with torch.autocast(logits.device.type, enabled=False):  # which would take products in an objective for layers
            value = objective(logits, y)
        if value.shape != y.shape:  # a mean over the batch, say
            raise ValueError(
                f'Expected `objective` "{base}" to give one value per row, of shape {tuple(y.shape)}, '
                f"but got {tuple(value.shape)}."
            )
        return value

    return scaled


def directed(name: str, targeted: bool) -> Objective:
    """What an attack maximises: the objective, or minus the objective where `y` is the class to reach."""
    objective = get_objective(name)
    if not targeted and name.partition("*")[0] == _TARGETED_ONLY:
        raise ValueError(f'Expected `objective` "{_TARGETED_ONLY}" to be used with targeted=True; there is also "dlr".')
    return (lambda logits, y: -objective(logits, y)) if targeted else objective


def _scale(text: str) -> float:
    try:
        scale = float(text)
    except ValueError:
        scale = math.nan
    if not 0 < scale < math.inf:
        raise ValueError(f"Expected the logit scale in `objective` to be a number above 0, but got {text!r}.")
    return scale


def in_full(logits: Tensor) -> Tensor:
    """Half precision as float32, everything else as it is."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


def best_other(scores: Tensor, y: Tensor) -> Tensor:
    """max_{k != y} of every row."""
    return scores.scatter(1, y[:, None], -torch.inf).amax(1)


def of_class(scores: Tensor, y: Tensor) -> Tensor:
    """The score of class y of every row."""
    return scores.gather(1, y[:, None]).squeeze(1)


def log_odds(logits: Tensor, k: Tensor) -> Tensor:
    r"""$\log\frac{f_k}{1 - f_k} = z_k - \log\sum_{i \neq k} e^{z_i}$ of the class k of each row, f the softmax; (N,).

    In $\nabla f_k = f_k (1 - f_k)\, \nabla \log\frac{f_k}{1 - f_k}$ the factor dies out where the softmax is saturated,
    until it is exactly zero in float32. The log-odds have the direction without the factor, and a step that is a sign
    or has a unit norm needs no more.

    Example:
        >>> log_odds(torch.tensor([[200.0, 0.0]], requires_grad=True), torch.tensor([0]))
        tensor([200.], grad_fn=<SubBackward0>)
    """
    others = logits.scatter(1, k[:, None], -torch.inf)
    return of_class(logits, k) - others.logsumexp(1)


def _spread(logits: Tensor, name: str, fewest: int) -> Tensor:
    r"""$z_{\pi_1}$ minus the mean of the third to the `fewest`-th largest logit, by which DLR divides.

    Where a mask has put one of these at -inf it is 1, which leaves the margin: DLR itself would not move.
    """
    if logits.shape[1] < fewest:
        raise ValueError(
            f'Expected at least {fewest} classes for `objective` "{name}", but the model has {logits.shape[1]}.'
        )
    top = logits.topk(fewest, dim=1).values
    spread = top[:, 0] - top[:, 2:].mean(1) + 1e-12
    return torch.where(spread.isfinite(), spread, 1)


@register_objective("ce")
def cross_entropy(logits: Tensor, y: Tensor) -> Tensor:
    r"""$\log\sum_k e^{z_k} - z_y$. Its gradient is exactly zero in float32 where $z_y$ leads by about 100."""
    return F.cross_entropy(logits, y, reduction="none")


@register_objective("margin")
def margin(logits: Tensor, y: Tensor) -> Tensor:
    r"""$\max_{k \neq y} z_k - z_y$ (Carlini and Wagner, 2017): positive exactly where y is not predicted."""
    return best_other(logits, y) - of_class(logits, y)


@register_objective("dlr")
def dlr(logits: Tensor, y: Tensor) -> Tensor:
    r"""$(\max_{k \neq y} z_k - z_y) / (z_{\pi_1} - z_{\pi_3})$, z sorted downwards by $\pi$ (Croce and Hein, 2020)."""
    return margin(logits, y) / _spread(logits, "dlr", 3)


@register_objective("dlr-targeted")
def dlr_targeted(logits: Tensor, y: Tensor) -> Tensor:
    r"""$(\max_{k \neq t} z_k - z_t) / (z_{\pi_1} - (z_{\pi_3} + z_{\pi_4})/2)$ for the target class t, given as `y`.

    Croce and Hein (2020) have the true class's logit in place of the maximum; it is the same while the true class is
    the strongest other one, and needs no true class to be known.
    """
    return margin(logits, y) / _spread(logits, "dlr-targeted", 4)


def dlr_towards(logits: Tensor, y: Tensor, target: Tensor) -> Tensor:
    r"""$(z_t - z_y) / (z_{\pi_1} - (z_{\pi_3} + z_{\pi_4})/2)$: from the true class y towards another, t.

    The targeted DLR of Croce and Hein (2020), large where t leads y. It has no name, since it needs both classes.
    """
    logits = in_full(logits)
    return (of_class(logits, target) - of_class(logits, y)) / _spread(logits, "dlr-targeted", 4)


@register_objective("probability-margin")
def probability_margin(logits: Tensor, y: Tensor) -> Tensor:
    r"""$\max_{k \neq y} f_k - f_y$ for the softmax f: what the PC loss makes small (Xie et al., 2025)."""
    return margin(logits.softmax(1), y)


@register_objective("pc-lc")
def pc_lc(logits: Tensor, y: Tensor) -> Tensor:
    """:func:`pclc.functional.pc_loss` with the paper's margin and logit weight."""
    return losses.pc_loss(logits, y, reduction="none")


@register_objective("pc")
def pc(logits: Tensor, y: Tensor) -> Tensor:
    """:func:`pclc.functional.pc_loss` without the logit constraint."""
    return losses.pc_loss(logits, y, logit_weight=0, reduction="none")


@register_objective("gce")
def gce(logits: Tensor, y: Tensor) -> Tensor:
    """:func:`pclc.functional.guided_complement_entropy` with alpha = 1/3."""
    return losses.guided_complement_entropy(logits, y, reduction="none")


@register_objective("complement-entropy")
def complement_entropy(logits: Tensor, y: Tensor) -> Tensor:
    """:func:`pclc.functional.complement_entropy`, which does not see the true class."""
    return losses.complement_entropy(logits, y, reduction="none")
