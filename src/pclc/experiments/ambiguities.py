"""Where the paper leaves room, what we do there, and why: one list, of which the documentation's table is made."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pclc.experiments.toml import check_keys, read_toml


@dataclass(frozen=True)
class Ambiguity:
    """A question that the paper does not answer.

    Attributes:
        name: by which code and documentation speak of it.
        paper: what the paper says.
        choice: what we do.
        reason: why.
        other: the other choice.
        measured_by: the rows or columns of an experiment that try it; empty where none does.
    """

    name: str
    paper: str
    choice: str
    reason: str
    other: str
    measured_by: str = ""


@cache
def load_ambiguities() -> tuple[Ambiguity, ...]:
    """All of them.

    Example:
        >>> load_ambiguities()[0].choice
        '10 steps of eps / 10.'
    """
    content = read_toml("paper", "ambiguities")
    check_keys(content, "ambiguities", required={"ambiguities": list})
    required = dict.fromkeys(("name", "paper", "choice", "reason", "other"), str)
    for entry in content["ambiguities"]:
        check_keys(entry, "an ambiguity", required=required, optional={"measured_by": str})
    return tuple(Ambiguity(**entry) for entry in content["ambiguities"])


def ambiguity_table(measured: Mapping[str, str] | None = None) -> str:
    """The list as a table in Markdown.

    Args:
        measured: by name, what the other choice gave where that was tried.
    """
    lines = ["| name | the paper | here, and why | the other choice, and what it gives |", "| --- | --- | --- | --- |"]
    for entry in load_ambiguities():
        pending = f"see {entry.measured_by}" if entry.measured_by else "not tried"
        gives = (measured or {}).get(entry.name, pending)
        cells = entry.paper, f"{entry.choice} *Why:* {entry.reason}", f"{entry.other} *Gives:* {gives}."
        lines.append(f"| `{entry.name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"
