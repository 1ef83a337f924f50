"""A watch for catastrophic overfitting: robust accuracy that is suddenly lost."""

from collections.abc import Sequence

# Robust accuracy has collapsed when it is below this share of its best and has lost more than this.
_SHARE, _LOSS = 0.5, 0.1
# After so many measurements, all at or below this, a run is said to have made nothing robust.
_ENOUGH, _NOTHING = 5, 0.1


class CatastrophicOverfittingWarning(UserWarning):
    """The model fools the attack it is trained with, and stronger attacks break it."""


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
    """A notice when the last measurement has just collapsed; None while all is well, or where it was said before.

    It happens with one-step crafting (Wong et al., ICLR 2020): within an epoch the model learns to fool that step.
    """
    if not has_collapsed(robust) or has_collapsed(robust[:-1]):
        return None
    return (
        f"Robust accuracy has fallen from {max(robust):.1%} to {robust[-1]:.1%}: catastrophic overfitting. Try more "
        "steps of crafting, a smaller alpha or eps, or PGD instead of one step (method madry). The run goes on; with a "
        "validation split its best epoch is kept."
    )


def absence_notice(robust: Sequence[float]) -> str | None:
    """A notice at the end of a run that never had robust accuracy, so that none could collapse.

    Example:
        >>> absence_notice([0.06, 0.01, 0.0, 0.0, 0.0])
        'Robust accuracy was never above 6.0%: this training has not made the model robust.'
    """
    if len(robust) < _ENOUGH or max(robust) > _NOTHING:
        return None
    return f"Robust accuracy was never above {max(robust):.1%}: this training has not made the model robust."
