"""The sentence a user gets where a library of the ``report`` extra is missing."""

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def report_extra(job: str) -> Iterator[None]:
    """Wrap the imports that ``job`` needs; where one is missing, say how to install it.

    >>> with report_extra("reading tea leaves"):
    ...     import tea_leaves
    Traceback (most recent call last):
    ...
    ModuleNotFoundError: reading tea leaves needs tea_leaves: pip install 'pclc[report]'
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"{job} needs {error.name}: pip install 'pclc[report]'", name=error.name) from error
