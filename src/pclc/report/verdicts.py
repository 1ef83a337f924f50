"""What the audits say, in sentences, chips and tables."""

from collections.abc import Sequence
from typing import Any

from pclc.evaluation.audit import LEAST
from pclc.experiments.pages_text import joined
from pclc.report.runs import Budget, Run, is_same
from pclc.report.series import accuracy_of, plain_pgd
from pclc.report.table import NONE, Cell, number, percent, table

_NOTHING = "claims nothing"  # a verdict of "not refuted" that is no merit
# The worst first, with the class of the chip.
_ORDER = {"refuted": "bad", "cannot judge": "open", _NOTHING: "none", "not refuted": "good", "not audited": "none"}


def headline(runs: Sequence[Run]) -> str:
    """What holds up and what does not, by name."""
    named = {standing: [run.name for run in runs if _standing(run) == standing] for standing in _ORDER}
    words = {
        "refuted": ("does", "do", "not hold up"),
        "cannot judge": ("could", "could", "not be judged"),
        _NOTHING: ("claims", "claim", "no robustness to refute"),
        "not refuted": ("was", "were", "not refuted, which is no proof"),
        "not audited": ("was", "were", "not audited"),
    }
    sentences = []
    for standing, names in named.items():
        one, several, rest = words[standing]
        if names:
            figure, verb = ("figure", one) if len(names) == 1 else ("figures", several)
            sentences.append(f"The {figure} of {joined(names)} {verb} {rest}.")
    return " ".join(sentences)


def verdicts(runs: Sequence[Run], budget: Budget | None) -> list[dict[str, str]]:
    """The chip and the sentence of each run, the worst first."""
    return [_verdict(run, budget) for run in sorted(runs, key=lambda run: list(_ORDER).index(_standing(run)))]


def verdict_cell(run: Run, budget: Budget | None) -> Cell:
    """The verdict beside figures at this budget; one at another budget says at which."""
    verdict, where = _verdict_of(run), ""
    if run.audit is not None:
        norm, eps = run.audit["conditions"]["norm"], run.audit["conditions"]["eps"]
        if not is_same((norm, eps), budget):
            where = f" at {eps:.4g}" if budget and norm == budget[0] else f" at {norm} {eps:.4g}"
    return Cell(verdict + where, kind=_ORDER[_standing(run)])


def audits(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Each verdict with its figures and the evidence of every check."""
    return [_audit(run, run.audit) for run in runs if run.audit is not None]


def _verdict_of(run: Run) -> str:
    return str(run.audit["verdict"]) if run.audit else "not audited"


def _standing(run: Run) -> str:
    """The verdict, or that there was nothing to refute."""
    verdict = _verdict_of(run)
    if run.audit is None or verdict != "not refuted":
        return verdict
    claim = run.audit["stated_claim"]
    return _NOTHING if (run.audit["claimed"]["value"] if claim is None else claim) <= LEAST else verdict


def _verdict(run: Run, budget: Budget | None) -> dict[str, str]:
    verdict = _verdict_of(run)
    if run.audit is not None:
        left, about = _share(run.audit["robust_accuracy"]), run.audit["conditions"]
        sentence = (
            f"Claimed at {about['norm']} eps {about['eps']:.4g}: {_claimed(run.audit)}. Left in the worst case of the "
            f"audit: {left}. {run.audit['reason']}"
        )
    elif run.evaluation is None:
        unfinished = run.config is not None and run.training is None
        sentence = "Its training is not finished." if unfinished else "Not evaluated yet."
    elif (own := run.own(budget)) is None:
        sentence = f"{accuracy_of(run.evaluation.clean)} on clean images; no attack at the budget of this summary."
    else:
        pgd, worst = plain_pgd(run.evaluation, *own), accuracy_of(run.evaluation.survivors(*own))
        claimed = f"Plain PGD leaves {accuracy_of(pgd.robust)}. " if pgd else ""
        count = sum(1 for o in run.evaluation.outcomes if o.norm == own[0] and (o.eps or 0) <= own[1])
        sentence = f"{claimed}The worst case over {count} attacks up to {own[0]} eps {own[1]:.4g} is {worst}."
    return {"name": run.name, "verdict": verdict, "kind": _ORDER[_standing(run)], "sentence": sentence}


def _audit(run: Run, audit: dict[str, Any]) -> dict[str, Any]:
    name, about, over = run.name, audit["conditions"], audit["overstatement"]
    bound = f"at least {100 * over['bound']:.1f} % at {100 * over['confidence']:g} % confidence"
    overstated = f"{100 * (over['value'] or 0):.1f} % of the claim, {bound}"
    if over["value"] is None or over["value"] <= 0:
        overstated = "nothing is claimed" if over["value"] is None else "nothing: no less is left than is claimed"
    facts = [
        ("claimed" if audit["stated_claim"] is None else "claimed (stated)", _claimed(audit)),
        ("left in the worst case", _share(audit["robust_accuracy"])),
        ("clean", _share(audit["clean"])),
        ("overstated by", overstated),
        ("threat model", f"{about['norm']}, eps {about['eps']:.6g}"),
        ("examples", f"{audit['clean']['n']} of {about['given']} given, {about['data']}"),
        ("mode", about["mode"] + (", escalated" if about["escalated"] else "") + f", seed {about['seed']}"),
        ("witnesses", str(audit["witnesses"]["count"])),
        ("took", f"{audit['seconds']:.1f} s on {about['device']}"),
    ]
    order = {"fired": 0, "silent": 1, "not applicable": 2}
    checks = sorted(audit["checks"], key=lambda check: order[check["state"]])
    return {
        "name": name,
        "verdict": audit["verdict"],
        "kind": _ORDER[_standing(run)],
        "reason": audit["reason"],
        "facts": facts,
        "fired": [f"{c['name']}: {c['measured']}. Next: {c['next_step']}." for c in checks if c["state"] == "fired"],
        "checks": table(
            f"Checks of {name}",
            ("check", "state", "measured", "fires when", "evidence of", "then try", "source"),
            [
                [c["name"], c["state"], c["measured"], c["threshold"], c["kind"], c["next_step"], c["source"]]
                for c in checks
            ],
        ),
        "attacks": table(
            f"Attacks in the audit of {name}",
            tuple(key.replace("_", " ") for key in audit["attacks"][0]) if audit["attacks"] else ("attack",),
            [[_anything(value) for value in step.values()] for step in audit["attacks"]],
        ),
        "gradients": table(
            f"Gradients along the path of plain PGD on {name}",
            ("objective", "vanished %", "usable"),
            [[g["objective"], percent(g["vanished"]), "yes" if g["usable"] else "no"] for g in audit["gradients"]],
        ),
    }


def _claimed(audit: dict[str, Any]) -> str:
    stated = audit["stated_claim"]
    return _share(audit["claimed"]) if stated is None else f"{100 * stated:.1f} %"


def _share(share: dict[str, Any]) -> str:
    return f"{100 * share['value']:.1f} % ({100 * share['low']:.1f} to {100 * share['high']:.1f})"


def _anything(value: Any) -> Cell:
    if isinstance(value, bool):
        return Cell("yes" if value else "no")
    return number(value, 4) if isinstance(value, int | float) else Cell(NONE if value is None else str(value))
