"""Numbers as rows, and rows as CSV."""

import csv
import io
import os
from collections.abc import Mapping, Sequence

from pclc.files import write_atomically

Row = Mapping[str, str | int | float | None]


def write_csv(rows: Sequence[Row], path: str | os.PathLike[str]) -> None:
    """Write rows that all have the columns of the first one; floats keep every digit.

    Example:
        >>> import tempfile
        >>> from pathlib import Path
        >>> path = Path(tempfile.mkdtemp()) / "x.csv"
        >>> write_csv([{"eps": 0.1, "count": 3}], path)
        >>> path.read_text()
        'eps,count\\n0.1,3\\n'
    """
    if not rows:
        raise ValueError("Expected at least one row, but got none.")
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, text.getvalue().encode())
