"""The entropy over the false classes, on which GCE and COT are built."""

import torch
from torch import Tensor

from pclc.losses.inputs import true_logits


def complement_entropy_rows(logits: Tensor, target: Tensor, alpha: float, ignore_index: int) -> Tensor:
    r"""$f_y^\alpha / \log(K - 1) \sum_{k \neq y} q_k \log q_k$ of every row; logits (N, K, D), target (N, D).

    With $z$ the log-sum-exp over the false logits, $\log q_k = a_k - z$ and $f_y$ is the logistic function of
    $a_y - z$, so that nothing is divided by a vanishing probability. Rows with fewer than two false classes cost 0,
    rows with NaN or +inf among their logits NaN.
    """
    a = logits if logits.dtype == torch.float64 else logits.float()
    counted = target != ignore_index
    y = torch.where(counted, target, 0).unsqueeze(1)
    a_y = true_logits(a, y, ignore_index)
    false = (a != -torch.inf).scatter(1, y, 0)
    n_false = false.sum(1)
    some = counted & (n_false > 1)
    # Values that take part in no sum are replaced before the arithmetic: 0 * inf would spoil the gradient.
    a_false = torch.where(false & some.unsqueeze(1), a, -torch.inf)
    z = torch.logsumexp(torch.where(some.unsqueeze(1), a_false, 0), 1)
    log_q = torch.where(false & some.unsqueeze(1), a - z.unsqueeze(1), 0)
    q = torch.where(false & some.unsqueeze(1), log_q.exp(), 0)
    negative_entropy = (q * log_q).sum(1) / n_false.clamp(min=2).to(a.dtype).log()
    broken = counted & ~(a.amax(1) < torch.inf)  # +inf, and NaN, which is below nothing
    if alpha == 0:
        return torch.where(some, negative_entropy, 0).masked_fill(broken, torch.nan)
    log_f_y = torch.nn.functional.logsigmoid(torch.where(some, a_y.squeeze(1) - z, 0))
    return torch.where(some, (alpha * log_f_y).exp() * negative_entropy, 0).masked_fill(broken, torch.nan)
