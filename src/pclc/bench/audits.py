"""Audits on record: what `pclc audit` found, with how the model was trained and the commands that repeat both."""

import json
import shlex
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pclc
from pclc.attacks.attack import number_text
from pclc.evaluation.audit.document import load_document
from pclc.files import write_atomically
from pclc.hashes import model_hash
from pclc.report.commands import audit_options, training_command_of

FORMAT = "pclc-recorded-audit"
VERSION = 2


@dataclass(frozen=True)
class RecordedAudit:
    """One audit, small enough to be kept for good.

    Attributes:
        name: of the run directory.
        command: that repeats it, of the model in `runs/`.
        config: the run directory's configuration.
        audit: `audit.json` without the places of the witnesses.
    """

    name: str
    command: str
    config: dict[str, Any]
    audit: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        path.parent.mkdir(parents=True, exist_ok=True)
        content = {"format": FORMAT, "version": VERSION, **asdict(self)}
        write_atomically(path, (json.dumps(content, indent=1) + "\n").encode())

    @classmethod
    def load(cls, path: Path) -> "RecordedAudit":
        """Read what :meth:`save` wrote."""
        content = json.loads(path.read_text())
        if (content.pop("format", None), content.pop("version", None)) != (FORMAT, VERSION):
            raise ValueError(
                f"Expected {path} to hold a recorded audit ({FORMAT}, version {VERSION}), but it does not."
            )
        return cls(**content)

    @property
    def commands(self) -> tuple[str, str]:
        """That train the model and repeat the audit; the first is made anew, since defaults of training may change."""
        return training_command_of(self.name, self.config, self.audit["conditions"]["device"]), self.command

    @property
    def eps(self) -> str:
        """The radius as people write it."""
        return number_text(self.audit["conditions"]["eps"])

    @property
    def recipe(self) -> dict[str, Any] | None:
        """The adversarial part of the training, where there is one."""
        return self.config["train"].get("adversarial")  # type: ignore[no-any-return]


def record(run: Path, folder: Path, twin: Path | None = None) -> RecordedAudit:
    """What is kept of the audit in `folder`, of the model in a run directory; nothing is taken on trust.

    Args:
        run: run directory of `pclc train`; only its last name is kept, so that no path of a machine is.
        folder: where `pclc audit --out` wrote `audit.json`.
        twin: the run directory that the audit made transfers from.
    """
    config, audit = pclc.RunDirectory(run).config, load_document(folder)
    about = audit["conditions"]
    if about["model_hash"] != model_hash(pclc.load_model(run)):
        raise ValueError(f"Expected the audit in {folder} to be of the model in {run}, but its hash is of another one.")
    if about["data"] != f"{config['dataset']['name']}, test":
        raise ValueError(
            f"Expected an audit on the test images of {config['dataset']['name']}, but got {about['data']}."
        )
    if about["twin"] != (None if twin is None else model_hash(pclc.load_model(twin))):
        raise ValueError(
            f"Expected `twin` to be the run that the audit in {folder} made transfers from, but got {twin}."
        )
    name = run.resolve().name
    audit = {**audit, "witnesses": {"count": audit["witnesses"]["count"]}, "conditions": {**about, "model": name}}
    # A shell that stands in the project's folder repeats it, wherever this run was.
    command = _audit_command(Path("runs") / name, audit, None if twin is None else twin.resolve().name)
    return RecordedAudit(name, command, config, audit)


def load_recorded(results: Path) -> list[RecordedAudit]:
    """All that are kept in a folder, in the order of data sets, networks, budgets and names."""
    found = [RecordedAudit.load(path) for path in sorted(results.glob("*.json"))]

    def order(one: RecordedAudit) -> tuple[Any, ...]:
        return one.config["dataset"]["name"], one.config["model"]["name"], one.audit["conditions"]["eps"], one.name

    return sorted(found, key=order)


def _audit_command(place: Path, audit: dict[str, Any], twin: str | None) -> str:
    out = place / f"audit-{number_text(audit['conditions']['eps']).replace('/', '-')}"
    transfers = ["--transfer-from", str(place.with_name(twin))] if twin else []
    return shlex.join(["pclc", "audit", str(place), *audit_options(audit), *transfers, "--out", str(out)])
