"""The PC-LC loss and its gradient, written out in operations that PyTorch can differentiate and map again.

It needs several tensors of the size of the logits but few calls. The notation is that of `pc_rows.py`.
"""

import torch
from torch import Tensor

from pclc.losses.inputs import true_logits
from pclc.losses.pc_rows import Terms


def loss_and_gradient(logits: Tensor, target: Tensor, terms: Terms) -> tuple[Tensor, Tensor]:
    """The loss, of every row or their mean, and d loss / d logits, in fp32 (fp64 as given).

    Logits (N, K, D), target (N, D); the gradient (N, K, D) is that of the sum of what is returned as the loss.
    """
    a = logits if logits.dtype == torch.float64 else logits.float()
    counted = (target != terms.ignore_index).unsqueeze(1)
    y = torch.where(counted, target.unsqueeze(1), 0)
    a_y = true_logits(a, y, terms.ignore_index)
    false = (a != -torch.inf).scatter(1, y, 0)
    n_false = false.sum(1, keepdim=True)
    some = counted & (n_false > 0)
    # Where a row has no false class the formulas meet inf - inf; such rows are computed on zeros and dropped.
    a_false = torch.where(some, torch.where(false, a, -torch.inf), 0)
    a_j, j = a_false.max(1, keepdim=True)
    w = torch.softmax(a_false, 1)
    delta = torch.where(a_y == torch.inf, torch.nan, a_y - a_j + w.gather(1, j).log())
    f_y, rest = torch.sigmoid(delta), torch.sigmoid(-delta)
    f = w * rest
    violates = (false & (f + terms.margin > f_y)).to(a.dtype)
    count, mass = violates.sum(1, keepdim=True), (violates * f).sum(1, keepdim=True)
    loss = count * (terms.margin - f_y) + mass
    slope = -f_y * (count * rest + mass)  # with respect to the true class
    grad = f * (violates - mass + count * f_y)
    if terms.average_classes:
        loss, slope, grad = (part / n_false for part in (loss, slope, grad))
    if terms.hard:
        active = a_y > a_j
        pull = terms.logit_weight * active.to(a.dtype)
        loss = loss + terms.logit_weight * torch.where(active, a_y - a_j, 0)
        slope, grad = slope + pull, grad.scatter_add(1, j, -pull)
    if terms.soft:
        below = false & (a < a_y)
        gap = torch.where(below, a_y - torch.where(below, a, 0), 0)
        mean_gap = (w * gap).sum(1, keepdim=True)
        loss = loss + terms.logit_weight * mean_gap
        slope = slope + terms.logit_weight * (w * below).sum(1, keepdim=True)
        grad = grad + terms.logit_weight * w * (gap - mean_gap - below.to(a.dtype))
    loss = torch.where(n_false > 0, loss, a_y.clamp(0, 0))  # 0, but NaN where the logit is
    loss, grad = torch.where(counted, loss, 0).squeeze(1), grad.scatter(1, y, slope)
    if terms.mean:
        share = 1 / counted.sum(dtype=a.dtype)
        loss, grad = loss.sum() * share, grad * share
    return loss, torch.where(some, grad, 0)
