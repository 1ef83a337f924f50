r"""What adversarial training makes small: plain functions of clean logits, adversarial logits and labels.

f is the softmax of the clean logits and f' that of the adversarial ones; the criterion is any function of
(logits, labels) that gives a mean: cross-entropy, PC-LC, ...
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

Criterion = Callable[[Tensor, Tensor], Tensor]


def kl_rows(clean: Tensor, adversarial: Tensor) -> Tensor:
    r"""$\text{KL}(f \| f') = \sum_k f_k (\log f_k - \log f'_k)$ of every row: (N, K) and (N, K) to (N,).

    Half precision is computed in float32.

    Example:
        >>> kl_rows(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0]]))
        tensor([0.])
    """
    log_clean, log_adversarial = (F.log_softmax(_full(logits), dim=1) for logits in (clean, adversarial))
    return (log_clean.exp() * (log_clean - log_adversarial)).sum(1)


def mix_loss(clean: Tensor, adversarial: Tensor, y: Tensor, criterion: Criterion = F.cross_entropy) -> Tensor:
    r"""$\frac12 L(z, y) + \frac12 L(z', y)$: clean and adversarial examples 1:1 (Li et al., AAAI 2021, section 4)."""
    return (criterion(clean, y) + criterion(adversarial, y)) / 2


def trades_loss(
    clean: Tensor, adversarial: Tensor, y: Tensor, criterion: Criterion = F.cross_entropy, beta: float = 6.0
) -> Tensor:
    r"""$L(z, y) + \beta\, \text{KL}(f \| f')$ (Zhang et al., ICML 2019, arXiv 1901.08573).

    Gradients flow through both arguments of KL, as in the authors' code.

    Example:
        >>> clean, adversarial = torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 0.0]])
        >>> trades_loss(clean, adversarial, torch.tensor([0]), beta=1.0)
        tensor(0.4547)
    """
    return criterion(clean, y) + beta * kl_rows(clean, adversarial).mean()


def mart_loss(
    clean: Tensor, adversarial: Tensor, y: Tensor, criterion: Criterion = F.cross_entropy, beta: float = 5.0
) -> Tensor:
    r"""$L(z', y) - \log(1 - \max_{k \neq y} f'_k) + \beta\, (1 - f_y)\, \text{KL}(f \| f')$ (Wang et al., ICLR 2020).

    The first two terms are the paper's boosted cross-entropy where L is cross-entropy. $\log(1 - f'_j)$ is computed as
    the difference of two log-sums, which needs no small constant to stay finite.
    """
    z = _full(adversarial)
    rival = z.scatter(1, y[:, None], -torch.inf).argmax(1, keepdim=True)
    log_without_rival = z.scatter(1, rival, -torch.inf).logsumexp(1) - z.logsumexp(1)
    doubt = 1 - _full(clean).softmax(1).gather(1, y[:, None]).squeeze(1)
    return criterion(adversarial, y) - log_without_rival.mean() + beta * (doubt * kl_rows(clean, adversarial)).mean()


def _full(logits: Tensor) -> Tensor:
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits
