r"""The log-odds of a class's probability: the direction of its gradient, without its size.

For the softmax f, $\nabla f_k = f_k (1 - f_k)\, \nabla \log\frac{f_k}{1 - f_k}$. The factor dies out where the softmax
is saturated, until the gradient is exactly zero in float32; the log-odds do not. A step that is a sign or has a unit
norm sees no factor, so attacks with such steps follow the log-odds.
"""

from torch import Tensor


def log_odds(logits: Tensor, k: Tensor) -> Tensor:
    r"""$\log\frac{f_k}{1 - f_k} = z_k - \log\sum_{i \neq k} e^{z_i}$ of the class k of each row, (N,).

    Example:
        >>> import torch
        >>> log_odds(torch.tensor([[200.0, 0.0]], requires_grad=True), torch.tensor([0]))
        tensor([200.], grad_fn=<SubBackward0>)
    """
    others = logits.scatter(1, k[:, None], -float("inf"))
    return logits.gather(1, k[:, None]).squeeze(1) - others.logsumexp(1)
