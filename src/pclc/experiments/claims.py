"""The paper's claims in words, each with the check that decides it."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from pclc.analysis.claims import ANY, CHECKS, Figures, Finding
from pclc.experiments.published import TABLES, load_published
from pclc.experiments.toml import check_keys, read_toml


@dataclass(frozen=True)
class Claim:
    """What the paper says, in our words.

    Attributes:
        name: short.
        source: section and table.
        text: the claim.
        reading: how we take words that leave room; empty where they leave none.
        check: a name of `pclc.analysis.CHECKS`.
        settings: arguments of the check.
    """

    name: str
    source: str
    text: str
    reading: str
    check: str
    settings: Mapping[str, Any]

    def find(self, figures: Figures) -> Finding:
        """Hold the claim against figures."""
        return CHECKS[self.check](figures, **self.settings)

    def about_cross_entropy(self) -> "Claim | None":
        """The same of cross-entropy, where it is about PC-LC alone: whether that tells the two apart."""
        if self.settings.get("column") != "pc-lc" or "than" in self.settings:
            return None
        return replace(self, settings={**self.settings, "column": "ce"})

    def is_about(self, dataset: str, column: str) -> bool:
        """Whether figures of that data set and column are among those that decide it."""
        patterns = (*self.settings.get("datasets", ANY), *self.settings.get("less_datasets", ()))
        columns = {self.settings.get(key) for key in ("column", "than")}
        return column in columns and any(fnmatchcase(dataset, pattern) for pattern in patterns)


@cache
def load_claims() -> tuple[Claim, ...]:
    """All claims.

    Example:
        >>> claim = next(claim for claim in load_claims() if claim.name.startswith("masking 1"))
        >>> finding = claim.find(published_figures())
        >>> finding.holds, finding.of
        (False, 45)
    """
    return tuple(parse_claims(read_toml("paper", "claims")))


def parse_claims(content: Mapping[str, Any]) -> list[Claim]:
    """The claims that the content of a file describes."""
    check_keys(content, "claims", required={"claims": list})
    claims = []
    for entry in content["claims"]:
        required = {"name": str, "source": str, "text": str, "check": str, "with": dict}
        check_keys(entry, "a claim", required=required, optional={"reading": str})
        if entry["check"] not in CHECKS:
            raise ValueError(
                f"Expected `check` of {entry['name']!r} to be one of {', '.join(CHECKS)}, but got {entry['check']!r}."
            )
        try:
            own = {name: value for name, value in entry["with"].items() if name != "share"}  # which all can be given
            inspect.signature(CHECKS[entry["check"]]).bind({}, **own)
        except TypeError as error:
            raise ValueError(f"The settings of {entry['name']!r} do not fit {entry['check']}: {error}.") from error
        names = {"name", "source", "text", "check"}
        settings = {name: entry[name] for name in names}
        claims.append(Claim(**settings, reading=entry.get("reading", ""), settings=entry["with"]))
    return claims


def published_figures() -> dict[tuple[str, str, str, str], float]:
    """The paper's own figures, by the names that checks use."""
    return {
        (figure.table, figure.dataset, figure.column, figure.row): figure.value
        for table in TABLES
        for figure in load_published(table)
    }
