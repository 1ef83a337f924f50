"""The page: sections put into templates, with style and script inside, so that one file is all of it."""

import base64
import hashlib
import shlex
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from pclc.experiments.pages_text import counted
from pclc.extras import needs_extra
from pclc.files import write_atomically
from pclc.report import sections
from pclc.report.commands import commands_of
from pclc.report.inspections import inspections, ranks_legend
from pclc.report.runs import Budget, Run
from pclc.report.series import headline_budget
from pclc.report.verdicts import audits
from pclc.version import __version__

_TITLE = "Robustness report"


def write_report(
    runs: Sequence[Run],
    path: Path | str,
    *,
    title: str = _TITLE,
    budget: Budget | None = None,
    command: str | None = None,
    notes: Sequence[str] = (),
) -> Path:
    """Write the page, whole or not at all (see :func:`render_report`)."""
    path = Path(path)
    page = render_report(
        runs, title=title, budget=budget, command=command or _command(runs, path, title, budget), notes=notes
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, page.encode())
    return path


def render_report(
    runs: Sequence[Run],
    *,
    title: str = _TITLE,
    budget: Budget | None = None,
    command: str | None = None,
    notes: Sequence[str] = (),
) -> str:
    """One page of HTML about runs that needs nothing else; the same files give the same page.

    Args:
        runs: as `load_runs` reads them.
        title: of the page.
        budget: (norm, eps) that the summary is about; None: that of the audits, or else the middle one.
        command: what makes the page again; None leaves it out.
        notes: sentences that stand under the title.
    """
    with needs_extra("report", "a report"):
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from markupsafe import Markup
    if not runs:
        raise ValueError("Expected at least one run, but got none.")
    environment = Environment(
        loader=PackageLoader("pclc.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    style, script = (_template(name) for name in ("style.css", "script.js"))
    looks = inspections(runs)
    content = {
        "summary": sections.summary(runs, budget or _budget(runs)),
        "accuracy": sections.accuracy(runs),
        "published": sections.published(runs),
        "audits": audits(runs),
        "not_audited": ", ".join(run.name for run in runs if run.audit is None),
        "inspections": looks,
        "missing_inspection": ", ".join(run.name for run in runs if run.inspection is None),
        "ranks_legend": ranks_legend(),
        "training": sections.training(runs),
        "conditions": sections.conditions(runs),
    }
    commands = [(run.name, "\n".join(commands_of(run))) for run in runs]
    named = [
        ("summary", "Summary", True),
        ("accuracy", "Accuracy", content["accuracy"]),
        ("published", "Beside the paper", content["published"]),
        ("audit", "Audit", True),
        ("examples", "Images", looks),
        ("confusion", "Confusion", looks),
        ("tsne", "t-SNE", any(item["plane"] for item in looks)),
        ("training", "Training", content["training"]),
        ("conditions", "Conditions", True),
        ("repeat", "Repeat it", True),
    ]
    return environment.get_template("page.html").render(
        **content,
        title=title,
        version=__version__,
        lead=" ".join([_lead(runs), *notes, *(f"{run.name}: {note}" for run in runs for note in run.notes)]),
        sections=[(key, name) for key, name, is_there in named if is_there],
        commands=[*((name, text) for name, text in commands if text), *([("This page", command)] if command else [])],
        style=Markup(style),
        script=Markup(script),
        policy=_policy(script),
    )


def _template(name: str) -> str:
    return (files("pclc.report") / "templates" / name).read_text(encoding="utf-8")


def _policy(script: str) -> str:
    """Nothing may be loaded, and no script may run but our own, whatever a name in a result file holds."""
    own = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{own}'; "
        "base-uri 'none'; form-action 'none'"
    )


def _budget(runs: Sequence[Run]) -> Budget | None:
    audited = {(run.audit["conditions"]["norm"], run.audit["conditions"]["eps"]) for run in runs if run.audit}
    if len(audited) == 1:
        return audited.pop()
    return headline_budget([run.evaluation for run in runs if run.evaluation is not None])


def _lead(runs: Sequence[Run]) -> str:
    data = ", ".join(dict.fromkeys(run.dataset for run in runs if run.dataset))
    attacks = sum(len(run.evaluation.outcomes) for run in runs if run.evaluation)
    audits = sum(run.audit is not None for run in runs)
    found = f"{counted(attacks, 'attack')}, {counted(audits, 'audit')}"
    return f"{counted(len(runs), 'run')}{f' on {data}' if data else ''}: {found}."


def _command(runs: Sequence[Run], path: Path, title: str, budget: Budget | None) -> str:
    words = ["pclc", "report", *(str(run.path) for run in runs), "--out", str(path)]
    words += [] if title == _TITLE else ["--title", title]
    words += [] if budget is None else ["--norm", budget[0], "--eps", repr(budget[1])]
    return shlex.join(words)
