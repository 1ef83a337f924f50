"""Sections of a page that are made from result files, between marks in a text that people write."""

from collections.abc import Mapping, Sequence


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows with the same columns as a Markdown table.

    Example:
        >>> print(table([{"n": "1", "accuracy %": "50"}]))
        | n | accuracy % |
        | --- | --- |
        | 1 | 50 |
    """
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(row[column] for column in columns) + " |" for row in rows])


def between(text: str, name: str, content: str) -> str:
    """The text with something else between the marks of that name.

    Example:
        >>> between("before <!-- x: begin -->old<!-- x: end --> after", "x", "new").splitlines()
        ['before <!-- x: begin -->', '', 'new', '<!-- x: end --> after']
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if begin not in text or end not in text:
        raise ValueError(f"Expected the page to have the marks {begin} and {end}, but it has not.")
    head, rest = text.split(begin, 1)
    return f"{head}{begin}\n\n{content}\n{end}{rest.split(end, 1)[1]}"
