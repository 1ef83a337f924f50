"""What the documents say is so: their Python runs, their commands exist, their links lead somewhere."""

import importlib
import importlib.util
import json
import re
import shlex
import subprocess
import sys
import warnings
from pathlib import Path
from statistics import mean
from typing import Any

import click
import pytest
import typer

import pclc
from pclc.attacks import AttackWarning
from pclc.cli.app import app
from pclc.evaluation import SetupWarning
from pclc.experiments.experiment import load_experiment
from pclc.experiments.store import Store
from pclc.experiments.table import make_table
from pclc.experiments.values import Selection, choose
from pclc.training import AdversarialConfig, adversarial_config

ROOT = Path(__file__).parents[1]
AUDITS = ROOT / "results" / "audits"
RESULTS = ROOT / "results" / "reproduce"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
# These pages also have tables to check, and their tests run the blocks.
ELSEWHERE = {
    "attacks.md": "attacks/test_attack_documentation.py",
    "reproduction.md": "experiments/test_reproduction_page.py",
    "training.md": "training/test_adversarial_documentation.py",
}
OTHER_LIBRARIES = ("art", "autoattack", "foolbox", "torchattacks")


def blocks(page: Path, *languages: str) -> list[str]:
    """The fenced blocks of a page in these languages."""
    fences = re.findall(r"^```([^\n]*)\n(.*?)^```", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    return [text for language, text in fences if language in (languages or ("python",))]


def missing_library(block: str) -> str | None:
    """The library of others that a block imports and that is not here."""
    imported = re.findall(r"^(?:import|from) (\w+)", block, flags=re.MULTILINE)
    return next((name for name in imported if name in OTHER_LIBRARIES and not importlib.util.find_spec(name)), None)


HERE = [page for page in PAGES if blocks(page) and page.name not in ELSEWHERE]


@pytest.mark.parametrize("page", HERE, ids=lambda page: page.name)
def test_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests) -> None:
    """In the order of the page, each with the names of those before it, as a reader would type them."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, block in enumerate(blocks(page), start=1):
        missing = missing_library(block)
        with subtests.test(f"block {number}"), warnings.catch_warnings():
            if missing:
                pytest.skip(f"needs {missing}, which is not installed: make peers")
            for category in (SetupWarning, AttackWarning):
                warnings.simplefilter("ignore", category)  # small models on few images
            exec(compile(block, f"{page.name}, block {number}", "exec"), names)


def test_pages_that_are_tested_elsewhere_are() -> None:
    for name, test in ELSEWHERE.items():
        assert blocks(ROOT / "docs" / name)
        assert name in (ROOT / "tests" / test).read_text(encoding="utf-8")


@pytest.mark.parametrize("number", [0, 1], ids=["the loss", "the audit"])
def test_ten_lines_of_the_readme(number: int) -> None:
    block = blocks(ROOT / "README.md")[number]
    assert len([line for line in block.splitlines() if line]) <= 10


def test_the_drop_in_of_the_readme_learns() -> None:
    """The ten lines are PC-LC training: the loss they end with is lower than the one they begin with."""
    names: dict[str, object] = {}
    block = blocks(ROOT / "README.md")[0]
    body = block.replace("    loss.backward()", "    losses.append(float(loss.detach()))\n    loss.backward()")
    assert body != block
    exec("losses = []\n" + body, names)
    losses = names["losses"]
    assert isinstance(losses, list)
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_headline_is_on_record() -> None:
    words = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert "the claim of every PC-LC model is refuted" in words
    rows = json.loads((ROOT / "results" / "zoo.json").read_text(encoding="utf-8"))["rows"]
    assert {row["verdict"] for row in rows if row["family"].startswith("pc-lc")} == {"refuted"}
    recorded = {path.name: json.loads(path.read_text(encoding="utf-8")) for path in AUDITS.glob("*.json")}
    alone = [
        each["audit"]["verdict"] for each in recorded.values() if each["config"]["train"]["loss"].startswith("pc-lc")
    ]
    assert set(alone) == {"refuted"}


def test_what_the_readme_says_of_adversarial_training_is_on_record() -> None:
    words = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    store, study = Store(RESULTS), load_experiment("adversarial")
    choices = choose(store, Selection().tuning_cells(study))
    blocks = {block.model: block for block in make_table(store, study, Selection(), choices).blocks}
    block = blocks["vgg13, 50 epochs"]
    assert "three seeds of VGG-13 each" in words
    assert "three seeds of one network" in words
    assert block.seeds["ce"] == block.seeds["ce + pc"] == (0, 1, 2)
    cells = {cell.column: cell for cell in Selection().cells(study, choices)}
    gain = {c.row: c for c in block.contrasts if (c.column, c.baseline) == ("ce + pc", "ce")}
    assert "it gives about a point under AutoAttack and takes about five on clean images" in words
    assert "about a point more under AutoAttack than cross-entropy alone, and about five points less on clean" in words
    assert 0.5 < mean(gain["autoattack 8/255"].differences.values()) < 1.5
    assert gain["autoattack 8/255"].interval.interval.low > 0
    assert -5.5 < mean(gain["clean"].differences.values()) < -4.5
    assert "plain PGD sees a loss in both" in words
    assert gain["pgd 8/255"].interval.interval.high < 0
    assert "not refuted by an audit" in words
    assert set(block.audits["ce + pc"].values()) == {"not refuted"}
    page = (ROOT / "docs" / "adversarial-training.md").read_text(encoding="utf-8")
    assert "with the weight of PC and the learning rate that the study chose" in " ".join(page.split())
    chosen, preset = (
        (config.adversarial.resolved().beta, config.lr)
        for config in (cells["ce + pc"].training.config, adversarial_config("cifar10", "pc"))
        if config.adversarial
    )
    assert chosen == preset
    assert "the mean absolute error in its place does as well is open" in words
    assert "does as well as PC is open" in page
    assert "the other rivals, the second network and longer training are still to come" in words
    assert [column for column, seeds in block.seeds.items() if seeds] == ["ce", "ce + pc", "ce + mae"]
    assert [model for model, each in blocks.items() if any(each.seeds.values())] == ["vgg13, 50 epochs"]

    without, with_pc = (
        json.loads((AUDITS / f"vgg13-{name}-eps-8-255-h200.json").read_text(encoding="utf-8"))
        for name in ("madry", "pc")
    )
    left = [each["audit"]["robust_accuracy"]["value"] for each in (without, with_pc)]
    assert "one seed each, show a larger lead: there both have the same learning rate" in words
    assert 100 * (left[1] - left[0]) > mean(gain["autoattack 8/255"].differences.values())
    assert without["config"]["train"]["lr"] == with_pc["config"]["train"]["lr"]
    assert "cross-entropy does better with a larger one" in words
    assert cells["ce"].training.config.lr > without["config"]["train"]["lr"]


def test_the_two_commands() -> None:
    readme, makefile = ((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "Makefile"))
    for command in ("demo", "test"):
        assert f"make {command}" in readme
        assert re.search(rf"^{command}:", makefile, flags=re.MULTILINE)


def commands(group: click.Command, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], click.Command]:
    """All commands by what is typed."""
    inner = getattr(group, "commands", None)
    if inner is None:
        return {path: group}
    return {key: found for name, command in inner.items() for key, found in commands(command, (*path, name)).items()}


COMMANDS = commands(typer.main.get_command(app))


def parse(line: str) -> None:
    """Parse what is typed as the command would, and run nothing."""
    words = shlex.split(line, comments=True)
    words = words[words.index("pclc") + 1 :]
    if words[0].startswith("--"):
        assert words[0] in ("--version", "--help", "--install-completion"), line
        return
    path = next((tuple(words[:n]) for n in (2, 1) if tuple(words[:n]) in COMMANDS), None)
    assert path is not None, line
    if "--help" not in words:
        COMMANDS[path].make_context(" ".join(path), words[len(path) :])


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_has_examples_that_parse(path: tuple[str, ...]) -> None:
    text = COMMANDS[path].help or ""
    examples = re.findall(r"`(pclc [^`]+)`", text.partition("Example")[2])
    assert any(example.startswith(f"pclc {' '.join(path)}") for example in examples), f"pclc {' '.join(path)}"
    for example in examples:
        parse(" ".join(example.split()))


def test_commands_of_the_documents_parse() -> None:
    lines = [
        line
        for page in PAGES
        for block in blocks(page, "sh", "")
        for line in block.replace("\\\n", " ").splitlines()  # a command may go on in the next line
        if re.match(r"(?:torchrun .* -m )?pclc ", line)
    ]
    assert len(lines) > 20
    for line in lines:
        parse(line)


def test_the_site_has_every_page() -> None:
    """A page that no table of contents names is not found by readers."""
    pages = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    trees = [line for text in pages.values() for tree in re.findall(r"```\{toctree\}(.*?)```", text, re.DOTALL)
             for line in tree.split()]  # fmt: skip
    notebooks = {f"notebooks/{path.stem}" for path in (ROOT / "docs" / "notebooks").glob("*.ipynb")}
    assert {name for name in trees if not name.startswith(":")} >= set(pages) - {"index"} | notebooks


def test_the_site_builds(tmp_path: Path) -> None:
    """As `make docs` does, without the notebooks' results; formulas of pages and of docstrings are MathML."""
    pytest.importorskip("myst_nb", reason="needs the extra docs")
    options = ["--fail-on-warning", "--quiet", "-D", "nb_execution_mode=off", "-d", str(tmp_path / "doctrees")]
    command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(tmp_path / "html")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for page in ("losses.html", "api.html"):
        text = (tmp_path / "html" / page).read_text(encoding="utf-8")
        assert "<math" in text
        assert "$" not in re.sub(r"<(script|pre)\b.*?</\1>|<code\b.*?</code>", "", text, flags=re.DOTALL), page
    assert 'id="pclc.functional.pc_loss"' in text


def test_the_reference_has_every_public_name() -> None:
    """Each package of the surface is in the reference, and each name of `pclc` comes from one of them."""
    packages = re.findall(r"automodule:: (\S+)", (ROOT / "docs" / "api.md").read_text(encoding="utf-8"))
    shown = {name for package in packages for name in importlib.import_module(package).__all__}
    assert set(pclc.__all__) - {"attacks", "functional", "__version__"} <= shown
    for module in ("attacks", "functional"):
        assert f"pclc.{module}" in packages


def test_the_adversarial_trainers_of_other_libraries_are_made_as_the_page_says() -> None:
    """Each method stands for the first one in the configuration, which trains with cross-entropy as theirs do."""
    page = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
    row = next(line for line in page.splitlines() if "AdversarialTrainerMadryPGD" in line)
    text, *others = re.findall(r"`([^`]+)`", row.split("|")[2])
    names = {"TrainConfig": pclc.TrainConfig, "AdversarialConfig": AdversarialConfig}
    for method in ('"madry"', *others):
        config = eval(text.replace('"madry"', method), names)
        assert (config.loss, f'"{config.adversarial.method}"') == ("ce", method)
