"""The section on recorded audits: what they say about the paper's claims, a table, and the commands."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pclc.bench.audits import RecordedAudit, load_recorded
from pclc.bench.training_words import OF_THE_PAPER, training_words
from pclc.evaluation.audit.verdict import LEAST
from pclc.experiments.pages_text import markdown_table, replace_between
from pclc.files import write_atomically

MASKING = "masking "  # how the names of the paper's three tests begin


def write_audits(results: Path, page: Path) -> int:
    """Write the section of a page anew from the files in `results`; returns how many there were.

    The section stands between the marks "audits"; a page with the marks "audits in short" gets a small table.
    """
    found = load_recorded(results)
    text = page.read_text(encoding="utf-8")
    short = "<!-- audits in short: begin -->" in text
    name, section = ("audits in short", audits_in_short(found)) if short else ("audits", audits_section(found))
    write_atomically(page, replace_between(text, name, section).encode())
    return len(found)


def audits_in_short(found: Sequence[RecordedAudit]) -> str:
    """Claims and what is left of them, without the reasons; those of the paper's loss first."""
    rows = [_row(one) for ones in _kinds(found).values() for one in ones]
    columns = ["data", "network", "eps", "training", "claimed", "worst case", "verdict"]
    return markdown_table([{column: row[column] for column in columns} for row in rows]) if rows else "None yet."


def audits_section(found: Sequence[RecordedAudit]) -> str:
    """Sentences, the table, conditions and commands."""
    if not found:
        return "No audit is on record yet; `scripts/record-audits.sh` makes them.\n"
    parts = ["**What this means for the paper's claims.** " + " ".join(summary(found))]
    parts += ["\n".join(f"- {sentence(one)}" for one in found)]
    parts.append(
        "**The figures.** Accuracies in percent, with intervals of at least 95 % that cover the choice of test images "
        "only: each row is one training seed. Seconds are those of the audit."
    )
    parts += [markdown_table([_row(one) for one in found]), *_conditions(found), "**The commands**, in their order:"]
    commands = list(dict.fromkeys(command for one in found for command in one.commands))
    return "\n\n".join([*parts, "```\n" + "\n".join(commands) + "\n```"]) + "\n"


def summary(found: Sequence[RecordedAudit]) -> list[str]:
    """What the audits come to, by counting."""
    return [_counted(kind, ones) for kind, ones in _kinds(found).items() if ones]


def _kinds(found: Sequence[RecordedAudit]) -> dict[str, list[RecordedAudit]]:
    plain = [one for one in found if one.recipe is None]
    return {
        "trained with the paper's loss": [one for one in plain if one.config["train"]["loss"] in OF_THE_PAPER],
        "trained with another loss, without adversarial examples": [
            one for one in plain if one.config["train"]["loss"] not in OF_THE_PAPER
        ],
        "trained adversarially": [one for one in found if one.recipe is not None],
    }


def sentence(one: RecordedAudit) -> str:
    """One audit in words: the claim, what is left, the verdict, and what the paper's arguments said."""
    audit, about = one.audit, one.config
    stated = audit["stated_claim"]
    claimed = (
        f"a stated claim of {100 * stated:.1f} %" if stated is not None else f"PGD-40 leaves {_share(audit['claimed'])}"
    )
    words = (
        f"{about['dataset']['name']}, {about['model']['name']}, {training_words(one.config['train'])}, "
        f"{audit['conditions']['norm']} eps {one.eps}: "
        f"{claimed}, the audit {_share(audit['robust_accuracy'])}; **{audit['verdict']}**. {audit['reason']} "
    )
    sampled = [
        f"{s['attack']} on {s['tried']:,} of {s['tried'] + s['spared']:,}" for s in audit["attacks"] if s["spared"]
    ]
    part = f" Tried only on a random sample of survivors, few of which fell: {', '.join(sampled)}." if sampled else ""
    return words + _arguments(one) + part


def masking(one: RecordedAudit) -> dict[str, str]:
    """What each of the paper's three tests for masking said: "fired", "silent" or "not applicable"."""
    return {check["name"]: check["state"] for check in one.audit["checks"] if check["name"].startswith(MASKING)}


def _arguments(one: RecordedAudit) -> str:
    states = masking(one)
    if not states:
        return "The paper's tests for masking were not made."
    fired = [name for name, state in states.items() if state == "fired"]
    other = [name for name, state in states.items() if state == "not applicable"]
    rest = f" ({', '.join(other)}: not applicable)" if other else ""
    if fired:
        return f"Of the paper's tests for masking, these fire: {', '.join(fired)}{rest}."
    if one.audit["verdict"] == "refuted":
        return f"The paper's tests for masking are silent{rest}: they do not see what is wrong with this claim."
    return f"The paper's tests for masking are silent{rest}."


def _counted(kind: str, ones: Sequence[RecordedAudit]) -> str:
    verdicts = [one.audit["verdict"] for one in ones]
    refuted = [one for one in ones if one.audit["verdict"] == "refuted"]
    nothing = [one for one in ones if _claims_nothing(one)]
    left = max(ones, key=lambda one: float(one.audit["robust_accuracy"]["value"]))
    words = f"{len(ones)} audits of models {kind}: {verdicts.count('refuted')} refuted"
    if refuted:
        quiet = sum("fired" not in masking(one).values() for one in refuted)
        words += f" (in {quiet} of these all of the paper's tests for masking are silent)"
    words += f", {verdicts.count('not refuted')} not refuted"
    words += f" ({len(nothing)} because PGD-40 itself leaves at most {100 * LEAST:g} %)" if nothing else ""
    words += f", {verdicts.count('cannot judge')} cannot be judged. " if "cannot judge" in verdicts else ". "
    return words + (
        f"The most that is left among them is {100 * left.audit['robust_accuracy']['value']:.1f} % "
        f"({left.config['dataset']['name']}, {training_words(left.config['train'])}, eps {left.eps})."
    )


def _claims_nothing(one: RecordedAudit) -> bool:
    claimed = one.audit["claimed"]
    return one.audit["verdict"] == "not refuted" and claimed is not None and claimed["value"] <= LEAST


def _row(one: RecordedAudit) -> dict[str, str]:
    audit, about = one.audit, one.audit["conditions"]
    stated, over = audit["stated_claim"], audit["overstatement"]
    return {
        "data": one.config["dataset"]["name"],
        "network": one.config["model"]["name"],
        "training": training_words(one.config["train"]),
        "eps": one.eps if about["norm"] == "Linf" else f"{one.eps} ({about['norm']})",
        "n": f"{audit['clean']['n']:,}",
        "clean": f"{100 * audit['clean']['value']:.1f}",
        "claimed": f"{100 * stated:.1f} (stated)" if stated is not None else f"{100 * audit['claimed']['value']:.1f}",
        "worst case": _share(audit["robust_accuracy"]).replace(" %", ""),
        "overstated by at least": "-" if over["value"] is None else f"{100 * over['bound']:.1f} %",
        "verdict": audit["verdict"],
        "checks that fired": "; ".join(c["name"] for c in audit["checks"] if c["state"] == "fired") or "-",
        "seconds": f"{audit['seconds']:,.0f}",
    }


def _conditions(found: Sequence[RecordedAudit]) -> list[str]:
    """One line for each set of conditions; there is one where all was recorded at once."""
    lines = []
    for one in found:
        about = one.audit["conditions"]
        versions = "; ".join(f"{name} {version}" for name, version in about["versions"].items())
        lines.append(f"{about['device']}; mode {about['mode']}; seed {about['seed']}; {versions}.")
    return list(dict.fromkeys(lines))


def _share(share: dict[str, Any]) -> str:
    return f"{100 * share['value']:.1f} % ({100 * share['low']:.1f} to {100 * share['high']:.1f})"
