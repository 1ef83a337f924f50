"""The zoo's error rates, and their section in the documentation: no figure there is typed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pclc.bench.result import BenchResult, show
from pclc.evaluation.audit.finding import check_table
from pclc.evaluation.statistics import clopper_pearson
from pclc.experiments.pages_text import markdown_table, replace_between
from pclc.files import write_atomically

_COLUMNS = ("model", "made to be", "claimed %", "truth %", "certified %", "the claim is", "verdict", "bound %")


def error_rates(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Counts with exact 95 % intervals: the errors that an audit can make, and how often it declines.

    Example:
        >>> row = {"the claim is": "true", "verdict": "not refuted"}
        >>> error_rates([row, row])[0]
        {'what': 'false refutations, of true claims', 'count': '0 of 2', '95 % interval': '0.0 to 84.2 %'}
    """
    true = [row["verdict"] for row in rows if row["the claim is"] == "true"]
    false = [row["verdict"] for row in rows if row["the claim is"] == "false"]
    between = [row["verdict"] for row in rows if row["the claim is"] == "between"]
    return [
        _rate("false refutations, of true claims", true, "refuted"),
        _rate("true claims that it cannot judge", true, "cannot judge"),
        _rate("misses (not refuted), of false claims", false, "not refuted"),
        _rate("false claims that it cannot judge", false, "cannot judge"),
        _rate("false claims that are refuted", false, "refuted"),
        _rate("refuted, of claims in between", between, "refuted"),
    ]


def write_section(result: BenchResult, page: Path) -> None:
    """Replace what stands between the marks of the zoo and of the checks in a page."""
    text = page.read_text(encoding="utf-8")
    text = replace_between(text, "zoo", zoo_section(result))
    write_atomically(page, replace_between(text, "checks", check_table()).encode())


def zoo_section(result: BenchResult) -> str:
    """Conditions, error rates, the largest loss of an honest model, and every model."""
    about = "; ".join(f"{name} {value}" for name, value in result.conditions.items())
    honest = [row for row in result.rows if row["made to be"] == "honest"]
    parts = [f"`{result.command}`", f"{about}.", *result.notes, markdown_table(error_rates(result.rows))]
    if honest:
        worst = max(honest, key=lambda row: row["overstated %"] if row["the claim is"] != "true" else 0)
        real = [row["overstated %"] for row in honest if row["claimed %"] > 2]
        parts.append(
            f"The largest loss from the claim to the truth among the {len(real)} honest models that claim anything "
            f"is {max(real, default=0.0):.1f} % of the claim."
            + (f" Not true among them: {worst['model']}." if worst["the claim is"] != "true" else "")
        )
    certified = [row for row in result.rows if row["certified %"] is not None]
    if certified:
        gap = max(row["truth %"] - row["certified %"] for row in certified)
        parts.append(
            f"For {len(certified)} models a lower bound was computed from intervals; the reference lies at most "
            f"{gap:.1f} points above it."
        )
    parts.append(markdown_table([{column: show(row[column]) for column in _COLUMNS} for row in result.rows]))
    return "\n\n".join(parts) + "\n"


def _rate(what: str, verdicts: Sequence[str], verdict: str) -> dict[str, str]:
    n, count = len(verdicts), sum(given == verdict for given in verdicts)
    if not n:
        return {"what": what, "count": "0 of 0", "95 % interval": "-"}
    interval = clopper_pearson(count, n)
    text = f"{100 * interval.low:.1f} to {100 * interval.high:.1f} %"
    return {"what": what, "count": f"{count} of {n}", "95 % interval": text}
