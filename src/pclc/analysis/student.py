"""Quantiles of Student's t for whole degrees of freedom, from its closed form: no library is needed."""

import math


def student_quantile(confidence: float, degrees: int) -> float:
    """The t with P(-t < T < t) = confidence, for Student's T.

    Args:
        confidence: in (0, 1).
        degrees: of freedom, at least 1.

    Example:
        >>> f"{student_quantile(0.95, 4):.4f}"
        '2.7764'
    """
    if not 0 < confidence < 1:
        raise ValueError(f"Expected `confidence` to be in (0, 1), but got {confidence!r}.")
    if degrees < 1:
        raise ValueError(f"Expected `degrees` to be at least 1, but got {degrees!r}.")
    # t = sqrt(degrees) tan(angle), and the angle is bounded where t is not.
    low, high = 0.0, math.pi / 2
    for _ in range(80):
        middle = (low + high) / 2
        if _central_probability(middle, degrees) < confidence:
            low = middle
        else:
            high = middle
    return math.sqrt(degrees) * math.tan((low + high) / 2)


def _central_probability(angle: float, degrees: int) -> float:
    """P(|T| < sqrt(degrees) tan(angle)) (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = term if degrees > 1 else 0.0
    for k in range(3 if odd else 2, degrees, 2):
        term *= math.cos(angle) ** 2 * (k - 1) / k
        total += term
    return 2 / math.pi * (angle + math.sin(angle) * total) if odd else math.sin(angle) * total
