r"""The losses of adversarial training: plain functions of clean logits, adversarial logits and labels.

f is the softmax of the clean logits and f' that of the adversarial ones; the criterion is any function of
(logits, labels) that returns a mean: cross-entropy, PC-LC, ...
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

from pclc.attacks.objectives import in_full
from pclc.attacks.validate import check_number
from pclc.losses.functional import pc_loss

Criterion = Callable[[Tensor, Tensor], Tensor]


def kl_rows(clean: Tensor, adversarial: Tensor) -> Tensor:
    r"""$\text{KL}(f \| f') = \sum_k f_k (\log f_k - \log f'_k)$ of every row: (N, K) and (N, K) to (N,).

    Half precision is computed in float32. A class that is masked out, with a clean logit of -inf, adds nothing.

    Example:
        >>> kl_rows(torch.tensor([[0.0, 0.0]]), torch.tensor([[0.0, 0.0]]))
        tensor([0.])
    """
    log_clean, log_adversarial = (F.log_softmax(in_full(logits), dim=1) for logits in (clean, adversarial))
    masked = log_clean == -torch.inf
    # Before the arithmetic: 0 * (inf - inf) would spoil the gradient too.
    ratio = log_clean.masked_fill(masked, 0) - log_adversarial.masked_fill(masked, 0)
    return (log_clean.exp() * ratio).sum(1)


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
    z = in_full(adversarial)
    rival = z.scatter(1, y[:, None], -torch.inf).argmax(1, keepdim=True)
    # Where every false class is masked out, at -inf, argmax finds class 0, which may be the true class.
    without_rival = z.scatter(1, rival, -torch.inf).scatter(1, y[:, None], z.gather(1, y[:, None]))
    log_without_rival = without_rival.logsumexp(1) - z.logsumexp(1)
    doubt = 1 - in_full(clean).softmax(1).gather(1, y[:, None]).squeeze(1)
    return criterion(adversarial, y) - log_without_rival.mean() + beta * (doubt * kl_rows(clean, adversarial)).mean()


def pc_adversarial_loss(
    clean: Tensor | None,
    adversarial: Tensor,
    y: Tensor,
    criterion: Criterion = F.cross_entropy,
    beta: float = 10.0,
    *,
    margin: float = 0.995,
    clean_share: float = 0.0,
    kl_weight: float = 0.0,
    logit_weight: float = 0.0,
) -> Tensor:
    r"""A criterion and PC on the adversarial images; three more weights add the clean images, KL and LC.

    $$(1 - s)\, L(z', y) + s\, L(z, y) + \beta\, \text{PC}(z', y)
    + \kappa\, \text{KL}(f \| f') + \lambda\, \text{LC}(z', y)$$

    PC and LC are those of :func:`pclc.functional.pc_loss`, PC averaged over the false classes. PC is bounded: it pulls
    on samples near the boundary and ignores hopeless ones, which is why it needs a criterion beside it.

    `clean_share=1` with `kl_weight` gives TRADES with PC. With `margin=1` PC is the mean absolute error times
    K / (K - 1), exactly: every false class violates the margin, and
    $\text{PC} = \frac{1}{K - 1} \sum_{k \neq y} (f'_k + 1 - f'_y) = \frac{K}{K - 1} (1 - f'_y)$.

    Args:
        clean: (N, K) logits of the clean images; None where `clean_share` and `kl_weight` are 0.
        adversarial: (N, K) logits of the adversarial images.
        y: (N,) true classes.
        criterion: L.
        beta: weight of PC.
        margin: $\xi$ of PC, in (0, 1].
        clean_share: s, in [0, 1]: 0 applies L to the adversarial images only, 1 to the clean ones only.
        kl_weight: $\kappa$; gradients flow through both arguments of KL.
        logit_weight: $\lambda$; above 0 only where `beta` is.

    Example:
        >>> adversarial, y = torch.tensor([[1.0, 0.0, 0.0]]), torch.tensor([0])
        >>> pc_adversarial_loss(None, adversarial, y), F.cross_entropy(adversarial, y)
        (tensor(6.8597), tensor(0.5514))
    """
    check_pc_weights(beta, margin, clean_share, kl_weight, logit_weight)
    if clean is None and (clean_share or kl_weight):
        raise ValueError(
            "Expected `clean` to be logits where `clean_share` or `kl_weight` is above 0, "
            f"but got None with clean_share={clean_share} and kl_weight={kl_weight}."
        )
    terms = []
    if clean_share < 1:
        terms.append((1 - clean_share) * criterion(adversarial, y))
    if clean is not None and clean_share:
        terms.append(clean_share * criterion(clean, y))
    if beta:  # PC and LC in one go
        relative = logit_weight / beta
        terms.append(beta * pc_loss(adversarial, y, margin=margin, logit_weight=relative, average_classes=True))
    if clean is not None and kl_weight:
        terms.append(kl_weight * kl_rows(clean, adversarial).mean())
    return sum(terms[1:], terms[0])


def check_pc_weights(beta: float, margin: float, clean_share: float, kl_weight: float, logit_weight: float) -> None:
    """Refuse weights with which :func:`pc_adversarial_loss` has no meaning."""
    numbers = {"beta": beta, "clean_share": clean_share, "kl_weight": kl_weight, "logit_weight": logit_weight}
    for name, value in {**numbers, "margin": margin}.items():
        check_number(name, value, positive=name == "margin")
    if margin > 1:
        raise ValueError(f"Expected `margin` to be in (0, 1], but got {margin!r}.")
    if clean_share > 1:
        raise ValueError(f"Expected `clean_share` to be in [0, 1], but got {clean_share!r}.")
    if logit_weight and not beta:
        raise ValueError(
            f"Expected `beta` to be above 0 where `logit_weight` is, but got beta={beta!r} and "
            f"logit_weight={logit_weight!r}."
        )
    if clean_share == 1 and not (beta or kl_weight):
        raise ValueError(
            "Expected `beta` or `kl_weight` to be above 0 with clean_share=1, where nothing else uses the adversarial "
            "examples, but got 0 for both."
        )
