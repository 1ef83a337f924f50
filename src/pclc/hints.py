"""Suggestions for unknown names."""

import difflib
from collections.abc import Iterable


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown name: the known one that is nearest, or nothing.

    Example:
        >>> did_you_mean("pdg", ["fgsm", "pgd"]), did_you_mean("xyz", ["fgsm", "pgd"])
        (" Did you mean 'pgd'?", '')
    """
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" Did you mean {close[0]!r}?" if close else ""
