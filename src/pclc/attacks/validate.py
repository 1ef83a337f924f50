"""Refusals of settings that have no meaning, each a sentence with the argument, what was expected and what came."""

import math
import warnings
from collections.abc import Sequence

from pclc.attacks.notices import UnreachableWarning
from pclc.attacks.types import NORMS


def check_number(name: str, value: object, *, positive: bool = False) -> None:
    """Refuse what is not a finite number of at least 0, or above 0."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or value < 0 or (positive and value == 0):  # type: ignore[arg-type, operator]
        least = "above 0" if positive else "of at least 0"
        raise ValueError(f"Expected `{name}` to be a finite number {least}, but got {value!r}.")


def check_count(name: str, value: object) -> None:
    """Refuse what is not a whole number of at least 1."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"Expected `{name}` to be a whole number of at least 1, but got {value!r}.")


def check_share(name: str, value: object) -> None:
    """Refuse what is not a number in [0, 1]."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value <= 1:
        raise ValueError(f"Expected `{name}` to be a number in [0, 1], but got {value!r}.")


def check_untargeted(targeted: bool, attack: str) -> None:
    """Refuse a class to reach where an attack chooses its own."""
    if targeted:
        raise ValueError(
            f"Expected `targeted` to be False, because {attack} chooses its own target classes, but got True."
        )


def check_flag(name: str, value: object) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise ValueError(f"Expected `{name}` to be True or False, but got {value!r}.")


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse what is not among the choices."""
    if value not in choices:
        listed = " or ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f"Expected `{name}` to be {listed}, but got {value!r}.")


def check_ball(eps: object, norm: object) -> None:
    """Refuse a ball without meaning, and one in Linf that is larger than the box: 8 where 8/255 was meant."""
    check_choice("norm", norm, NORMS)
    check_number("eps", eps)
    if norm == "Linf" and eps > 1:  # type: ignore[operator]
        raise ValueError(
            f"Expected `eps` to be at most 1 in Linf, where images lie in [0, 1], but got {eps!r}. "
            f"Did you mean {eps!r}/255?"
        )


def warn_if_unreachable(eps: float, size: float, steps: int, name: str) -> None:
    """Say so where all steps together are shorter than eps."""
    if size * steps < eps * (1 - 1e-9):
        warnings.warn(
            f"{steps} steps with {name}={size:.4g} move at most {size * steps:.4g} and cannot reach eps={eps:.4g} "
            "from the image itself.",
            UnreachableWarning,
            stacklevel=4,  # past __post_init__ and the generated __init__, to the caller
        )
