"""What the pages of results share: Markdown, counts in words, and sections between marks."""

import re
from collections.abc import Collection, Mapping, Sequence

from pclc.evaluation.statistics import SeedComparison, compare_over_seeds
from pclc.experiments.block import bounds


def markdown_table(rows: Sequence[Mapping[str, str]]) -> str:
    """Rows with the same columns as a table.

    Example:
        >>> print(markdown_table([{"row": "clean", "ce": "99.2"}]))
        | row | ce |
        | --- | --- |
        | clean | 99.2 |
    """
    columns = list(rows[0])
    lines = ["| " + " | ".join(columns) + " |", "|" + " --- |" * len(columns)]
    lines += ["| " + " | ".join(row[column].replace("|", "\\|") for column in columns) + " |" for row in rows]
    return "\n".join(lines)


def bullets(lines: Sequence[str]) -> str:
    """Lines as a list."""
    return "\n".join(f"- {line}" for line in lines)


def counted(n: int, what: str) -> str:
    """A number with its noun.

    Example:
        >>> counted(1, "seed"), counted(2, "seed")
        ('1 seed', '2 seeds')
    """
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def listed(items: Sequence[object]) -> str:
    """Things in a row, or "none"."""
    return ", ".join(map(str, items)) or "none"


def joined(words: Sequence[str]) -> str:
    """Such as "one, two and three"."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]


def quoted(names: Sequence[str]) -> str:
    """Names in a row as code, which may have commas themselves.

    Example:
        >>> quoted(["ce", "ce + pc, margin 0.5"]), quoted([])
        ('`ce`, `ce + pc, margin 0.5`', 'none')
    """
    return listed([f"`{name}`" for name in names])


def shown(text: str) -> str:
    """A text of a result as a page can have it: figures with four digits, files without their folders.

    Example:
        >>> shown("45.633333 and 44.1 in /a/b/result.json at 8/255")
        '45.63 and 44.1 in result.json at 8/255'
    """
    text = re.sub(r"\d+\.\d{4,}", lambda found: f"{float(found[0]):.4g}", text)
    return re.sub(r"(?<![\w.])/(?:[^\s/]+/)*([^\s/]+)", r"\1", text)


_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def warnings_in(notes: Sequence[str]) -> list[str]:
    """The warnings of cells; those that differ in nothing but numbers are one, with the least and the largest.

    Example:
        >>> warnings_in(["mnist ce seed 0: epoch 7: 2.5% lost", "mnist ce seed 0: epoch 12: 0.50% lost"])
        ['Warning in 1 cell (mnist ce): epoch 7–12: 0.50–2.5% lost']
    """
    cells: dict[str, set[str]] = {}
    numbers: dict[str, list[list[str]]] = {}
    for note in notes:
        cell, _, text = note.partition(": ")
        kind = _NUMBER.sub("{}", text.replace("{", "{{").replace("}", "}}"))
        cells.setdefault(kind, set()).add(cell)
        numbers.setdefault(kind, []).append(_NUMBER.findall(text))
    return [
        f"Warning in {counted(len(cells[kind]), 'cell')} ({_without_seeds(cells[kind])}): "
        + shown(kind.format(*(_range(places) for places in zip(*found, strict=True))))
        for kind, found in numbers.items()
    ]


def _without_seeds(cells: Collection[str]) -> str:
    """Data sets and columns of cells, each once."""
    return listed(sorted({cell.rpartition(" seed ")[0] for cell in cells}))


def _range(numbers: Sequence[str]) -> str:
    low, high = min(numbers, key=float), max(numbers, key=float)
    return low if low == high else f"{low}–{high}"


def compare(first: Mapping[int, float], second: Mapping[int, float], step: float) -> SeedComparison | float | None:
    """First minus second over the seeds that both have: a number where that is one, None where there is none.

    A figure can change by `step` at the least.

    Example:
        >>> compare({0: 2.0}, {0: 1.5, 1: 1.0}, 0.01), compare({0: 2.0}, {1: 1.0}, 0.01)
        (0.5, None)
    """
    seeds = sorted(first.keys() & second.keys())
    if len(seeds) > 1:
        return compare_over_seeds([first[seed] for seed in seeds], [second[seed] for seed in seeds], step=step)
    return first[seeds[0]] - second[seeds[0]] if seeds else None


def difference(found: SeedComparison | float | None) -> str:
    """A difference with its interval, as a table has it.

    Example:
        >>> difference(0.5), difference(None)
        ('+0.50 (1 seed)', 'not run')
    """
    if found is None:
        return "not run"
    if isinstance(found, float):
        return f"{found:+z.2f} (1 seed)"
    return f"{found.difference:+z.2f} ({bounds(found.interval.low, found.interval.high, digits=2)})"


def replace_between(text: str, name: str, content: str) -> str:
    """Put `content` between the marks of that name; what stands around them stays.

    Example:
        >>> replace_between("a <!-- x: begin --> b <!-- x: end --> c", "x", "new")
        'a <!-- x: begin -->\\n\\nnew\\n\\n<!-- x: end --> c'
    """
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"Expected the page to have the marks {begin} and {end} once, but it has not.")
    head, rest = text.split(begin)
    return f"{head}{begin}\n\n{content.strip()}\n\n{end}{rest.split(end)[1]}"
