"""The losses written again, naively, from the papers' formulas: what the fast versions are compared with."""

import torch
from torch import Tensor


def naive_pc_row(
    a: Tensor, y: int, margin: float, logit_weight: float, constraint: str, average_classes: bool
) -> Tensor:
    """Equations 6 and 16 for one row, a class at a time; for finite logits."""
    f = torch.softmax(a, 0)
    false = [k for k in range(len(a)) if k != y]
    pc = sum((f[k] + margin - f[y]).clamp(min=0) for k in false)
    if average_classes:
        pc = pc / len(false)
    if constraint == "hard":
        lc = (a[y] - max(a[k] for k in false)).clamp(min=0)
    else:
        w = torch.softmax(torch.stack([a[k] for k in false]), 0)
        lc = sum(w[i] * (a[y] - a[k]).clamp(min=0) for i, k in enumerate(false))
    return pc + logit_weight * lc


def naive_pc_rows(
    a: Tensor, y: Tensor, margin: float, logit_weight: float, constraint: str, average_classes: bool
) -> Tensor:
    """The same for (N, K), vectorised over rows only by stacking whole-row formulas; for finite logits and any K."""
    f = torch.softmax(a, 1)
    is_true = torch.nn.functional.one_hot(y, a.shape[1]).bool()
    hinge = (f + margin - f.gather(1, y[:, None])).clamp(min=0)
    pc = hinge.masked_fill(is_true, 0).sum(1)
    if average_classes:
        pc = pc / (a.shape[1] - 1)
    a_y = a.gather(1, y[:, None])
    false = a.masked_fill(is_true, -torch.inf)
    if constraint == "hard":
        lc = (a_y[:, 0] - false.max(1).values).clamp(min=0)
    else:
        lc = (torch.softmax(false, 1) * (a_y - a).clamp(min=0)).sum(1)
    return pc + logit_weight * lc


def near_hinge(a: Tensor, y: Tensor, margin: float, tolerance: float) -> Tensor:
    """Rows with a kink of the loss so close that rounding may decide on which side they lie.

    The kinks are at f_k + margin = f_y and, of the constraints, at a_k = a_y.
    """
    f = torch.softmax(a.double(), 1)
    distance = f + margin - f.gather(1, y[:, None])
    distance = torch.minimum(distance.abs(), (a.double() - a.double().gather(1, y[:, None])).abs())
    distance = distance.masked_fill(torch.nn.functional.one_hot(y, a.shape[1]).bool(), torch.inf)
    return (distance < tolerance).any(1)


def naive_gce_row(a: Tensor, y: int, alpha: float) -> Tensor:
    """f_y^alpha / log(K - 1) * sum over false classes of q log q, a class at a time."""
    f = torch.softmax(a, 0)
    false = [k for k in range(len(a)) if k != y]
    q = torch.stack([f[k] / (1 - f[y]) for k in false])
    return f[y] ** alpha * (q * q.log()).sum() / torch.log(torch.tensor(len(false), dtype=a.dtype))
