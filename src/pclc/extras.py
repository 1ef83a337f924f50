"""The error message where a library of an extra is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needs_extra(extra: str, job: str) -> Iterator[None]:
    """Wrap the imports that `job` needs; where one is missing, say how to install it.

    Example:
        >>> with needs_extra("data", "reading tea leaves"):
        ...     import tea_leaves
        Traceback (most recent call last):
        ...
        ModuleNotFoundError: reading tea leaves needs tea_leaves: pip install 'pclc[data]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{job} needs {error.name}: pip install 'pclc[{extra}]'", name=error.name) from error
