"""A watch for catastrophic overfitting: robust accuracy that was there and is gone."""

from collections.abc import Sequence

# Robust accuracy has collapsed when it is below this share of its best and has lost at least so much.
_SHARE, _LOSS = 0.5, 0.1
# So many measurements without more than this are no beginning.
_ENOUGH, _NOTHING = 5, 0.1


class CatastrophicOverfittingWarning(UserWarning):
    """The model fools the attack it is trained with, not attackers."""


def has_collapsed(robust: Sequence[float]) -> bool:
    """Whether the last of a run's robust accuracies is below half of the best before it, and by more than 10 points.

    Example:
        >>> has_collapsed([0.30, 0.41, 0.02]), has_collapsed([0.30, 0.41, 0.35]), has_collapsed([0.08, 0.01])
        (True, False, False)
    """
    if not robust:
        return False
    best, last = max(robust), robust[-1]
    return last < _SHARE * best and best - last > _LOSS


def collapse_notice(robust: Sequence[float]) -> str | None:
    """What to say about the last measurement: something when it has just collapsed, None while all is well or known.

    One-step crafting is what this happens to (Wong et al., ICLR 2020): the model learns to fool the single step, and
    stronger attacks break it within an epoch.
    """
    if not has_collapsed(robust) or has_collapsed(robust[:-1]):
        return None
    return (
        f"Robust accuracy has fallen from {max(robust):.1%} to {robust[-1]:.1%}: catastrophic overfitting. Try more "
        "steps of crafting, a smaller alpha or eps, or PGD instead of one step (method madry). The run goes on; with a "
        "validation split its best epoch is kept."
    )


def absence_notice(robust: Sequence[float]) -> str | None:
    """What to say at the end of a run that had no robust accuracy at any time: there was nothing that could fall.

    Example:
        >>> absence_notice([0.06, 0.01, 0.0, 0.0, 0.0])
        'Robust accuracy was never above 6.0%: the training has made nothing robust.'
    """
    if len(robust) < _ENOUGH or max(robust) > _NOTHING:
        return None
    return f"Robust accuracy was never above {max(robust):.1%}: the training has made nothing robust."
