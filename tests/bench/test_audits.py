"""Audits on record: what is kept is what was found, it repeats with its commands, and the page says no more."""

import copy
import json
import shlex
from pathlib import Path

import pytest
import torch

import pclc
from pclc.bench.audits import RecordedAudit, load_recorded, record
from pclc.bench.audits_page import audits_section, sentence, summary, write_audits
from pclc.cli import main
from pclc.evaluation.audit.document import load_document

TRAIN = "train digits --loss gce --epochs 2 --seed 3 --device cpu --out {}/net"
AUDIT = "audit {0}/net --eps 25.5/255 --quick --examples 50 --device cpu --transfer-from {0}/twin --out {0}/net/audit"
MARKS = "<!-- audits: begin -->\nold\n<!-- audits: end -->\nafter\n"


def pclc_command(line: str, patch: pytest.MonkeyPatch) -> None:
    patch.setattr("sys.argv", ["pclc", *shlex.split(line)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code in (0, 1, None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a twin, and the audit of the model."""
    made = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        pclc_command(TRAIN.format(made), patch)
        pclc_command(TRAIN.format(made).replace("gce", "ce").replace("/net", "/twin"), patch)
        pclc_command(AUDIT.format(made), patch)
    return made


@pytest.fixture
def kept(folder: Path) -> RecordedAudit:
    return record(folder / "net", folder / "net" / "audit", folder / "twin")


def changed(one: RecordedAudit, verdict: str, fired: bool, claimed: float = 0.5) -> RecordedAudit:
    """The same with another verdict, and with the first argument of the paper fired or not."""
    other = copy.deepcopy(one)
    other.audit["verdict"], other.audit["claimed"]["value"] = verdict, claimed
    for check in other.audit["checks"]:
        if check["name"].startswith("masking"):
            check["state"] = "fired" if fired and check["name"].startswith("masking 1") else "silent"
    return other


def test_what_is_kept_repeats(folder: Path, kept: RecordedAudit, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (TRAIN.format("runs").replace("gce", "ce").replace("/net", "/twin"), *kept.commands):
        pclc_command(command.replace("\\\n", " ").removeprefix("pclc "), monkeypatch)
    again = load_document(next(Path("runs/net").glob("audit-*")))
    for document in (again, first := load_document(folder / "net" / "audit")):
        del document["seconds"], document["conditions"]["model"]
        for step in document["attacks"]:
            del step["seconds"]
    assert again == first


def test_it_is_small_and_knows_no_machine(folder: Path, kept: RecordedAudit, tmp_path: Path) -> None:
    file = tmp_path / "deep" / "net.json"
    kept.save(file)
    assert RecordedAudit.load(file) == kept
    text = file.read_text()
    assert len(text) < 60_000
    assert str(folder) not in text
    assert kept.audit["robust_accuracy"] == load_document(folder / "net" / "audit")["robust_accuracy"]
    file.write_text("{}")
    with pytest.raises(ValueError, match="to hold a recorded audit"):
        RecordedAudit.load(file)


def test_nothing_is_taken_on_trust(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="its hash is of another one"):
        record(folder / "twin", folder / "net" / "audit", folder / "twin")
    with pytest.raises(ValueError, match="Expected `twin` to be the run"):
        record(folder / "net", folder / "net" / "audit")
    document = load_document(folder / "net" / "audit")
    document["conditions"]["data"] = "digits, train"
    (tmp_path / "audit.json").write_text(json.dumps(document))
    with pytest.raises(ValueError, match="test images of digits"):
        record(folder / "net", tmp_path, folder / "twin")


def test_the_page_has_the_figures_of_the_files(folder: Path, kept: RecordedAudit, tmp_path: Path, monkeypatch) -> None:
    page, results = tmp_path / "page.md", tmp_path / "results"
    page.write_text(MARKS)
    line = f"bench audits {folder}/net --audit {folder}/net/audit --transfer-from {folder}/twin"
    pclc_command(f"{line} --save {results}/net.json --results {results} --page {page}", monkeypatch)
    text = page.read_text()
    audit = kept.audit
    for value in (
        f"{100 * audit['clean']['value']:.1f}",
        f"PGD-40 leaves {100 * audit['claimed']['value']:.1f} %",
        f"{100 * audit['robust_accuracy']['value']:.1f} ({100 * audit['robust_accuracy']['low']:.1f} to",
        f"| {audit['verdict']} |",
        f"torch {torch.__version__}",
        f"pclc {pclc.__version__}",
        *kept.commands,
    ):
        assert value in text, value
    assert "old" not in text
    assert text.endswith("after\n")
    assert write_audits(results, page) == 1
    assert page.read_text() == text


def test_without_files_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "page.md").write_text(MARKS)
    assert write_audits(tmp_path / "none", tmp_path / "page.md") == 0
    assert "No audit is on record yet" in (tmp_path / "page.md").read_text()
    (tmp_path / "page.md").write_text("no marks")
    with pytest.raises(ValueError, match="Expected the page to have the marks"):
        write_audits(tmp_path / "none", tmp_path / "page.md")


def test_a_page_with_the_marks_for_it_gets_the_short_table(kept: RecordedAudit, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(MARKS.replace("audits:", "audits in short:"))
    kept.save(tmp_path / "results" / "net.json")
    assert write_audits(tmp_path / "results", page) == 1
    text = page.read_text()
    assert f"{100 * kept.audit['claimed']['value']:.1f}" in text
    assert f"| {kept.audit['verdict']} |" in text
    assert "pclc audit" not in text


def test_silent_arguments_on_a_refuted_claim_are_told(kept: RecordedAudit) -> None:
    assert "do not see what is wrong" in sentence(changed(kept, "refuted", fired=False))
    assert "these fire: masking 1" in sentence(changed(kept, "refuted", fired=True))
    assert "do not see" not in sentence(changed(kept, "not refuted", fired=False))
    other = changed(kept, "refuted", fired=False)
    other.audit["attacks"][-1] |= {"attack": "spsa(eps=0.1)", "tried": 500, "spared": 1500}
    assert "spsa(eps=0.1) on 500 of 2,000" in sentence(other)


def test_the_summary_counts(kept: RecordedAudit) -> None:
    paper = copy.deepcopy(kept)
    paper.config["train"]["loss"] = "pc-lc"
    robust = copy.deepcopy(kept)
    robust.config["train"]["adversarial"] = {"method": "madry", "eps": 8 / 255}
    found = [
        changed(paper, "refuted", fired=False),
        changed(paper, "refuted", fired=True),
        changed(paper, "not refuted", fired=False, claimed=0.01),
        changed(kept, "cannot judge", fired=False),
        robust,
    ]
    first, second, third = summary(found)
    assert "3 audits of models trained with the paper's loss: 2 refuted (in 1 of these" in first
    assert "1 not refuted (1 because PGD-40 itself leaves at most 2 %)" in first
    assert "1 audits of models trained with another loss" in second
    assert "1 cannot be judged" in second
    assert "trained adversarially" in third
    assert "adversarial (madry with GCE, eps 8/255)" in audits_section(found)


def test_they_come_in_order(kept: RecordedAudit, tmp_path: Path) -> None:
    small = copy.deepcopy(kept)
    small.audit["conditions"]["eps"] = 0.05
    kept.save(tmp_path / "a.json")
    small.save(tmp_path / "b.json")
    assert [one.eps for one in load_recorded(tmp_path)] == ["0.05", "0.1"]
