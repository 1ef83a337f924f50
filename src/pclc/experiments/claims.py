"""The paper's claims in words, each with the check that decides it, held against our figures and its own."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from pclc.analysis.claims import ANY, CHECKS, Figures, Finding
from pclc.experiments.experiment import Experiment, load_experiment
from pclc.experiments.published import TABLES, load_published
from pclc.experiments.store import Store
from pclc.experiments.toml import check_keys, read_toml
from pclc.experiments.values import Selection, mean_figures


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


@dataclass(frozen=True)
class JudgedClaim:
    """A claim of the paper in words, held against our figures and against the paper's own.

    Attributes:
        claim: what is said.
        ours: what our figures say to it.
        paper: what the paper's own do.
        partial: not all that it is about has been run.
        rival: what our figures of cross-entropy say to it, where it is about PC-LC alone.
    """

    claim: Claim
    ours: Finding
    paper: Finding
    partial: bool
    rival: Finding | None = None

    def text(self) -> str:
        """What became of it."""
        word = {True: "holds", False: "does not hold", None: "not run"}[self.ours.holds]
        if self.partial and self.ours.of:
            word += " so far"
        counts = f" ({self.ours.held} of {self.ours.of} comparisons)" if self.ours.of else ""
        own = f"; in the paper's own figures {self.paper.held} of {self.paper.of}" if self.paper.of else ""
        rival = f"; for cross-entropy here {self.rival.held} of {self.rival.of}" if self.rival and self.rival.of else ""
        return f"{self.claim.name}: {word}{counts}{own}{rival}"


def judge_claims(
    store: Store, experiment: Experiment, selection: Selection, choices: Mapping[str, int]
) -> tuple[JudgedClaim, ...]:
    """The paper's claims that are about this experiment; those about another one too are given its figures as well."""
    figures = mean_figures(store, experiment, selection.cells(experiment, choices))
    everything = replace(selection, datasets=None, columns=None, seeds=None)
    judged = []
    for claim in load_claims():
        about = {claim.settings.get(key) for key in ("experiment", "white_box")} - {None}
        if experiment.name not in about:
            continue
        needed, cells = dict(figures), everything.cells(experiment, choices)
        for name in about - {experiment.name}:
            other = load_experiment(str(name))
            needed |= mean_figures(store, other, selection.cells(other))
            cells += everything.cells(other)
        partial = any(claim.is_about(cell.training.dataset, cell.column) and store.load(cell) is None for cell in cells)
        same = claim.about_cross_entropy()
        rival = None if same is None else same.find(needed)
        judged.append(JudgedClaim(claim, claim.find(needed), claim.find(published_figures()), partial, rival))
    return tuple(judged)
