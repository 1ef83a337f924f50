"""How commands end: a mistake in a sentence and with 2, a crash with 70, and neither with a verdict of the audit."""

import json
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console
from typed_command import Command

import pclc
from pclc.bench.result import show
from pclc.cli import audit as audit_command
from pclc.cli.app import _sentence, main
from pclc.cli.output import print_table
from pclc.evaluation import DataSource, witnesses_of

CPU = ("--device", "cpu")


def saved(folder: str, seed: int = 0) -> Path:
    """A folder with a model that knows nothing."""
    torch.manual_seed(seed)
    pclc.save_model(pclc.create_model("lenet8", in_channels=1, image_size=8), folder)
    return Path(folder)


EVALUATE = ("evaluate", "run", "--dataset", "digits", "--examples", "20", *CPU)
AUDIT = ("audit", "run", "--dataset", "digits", "--eps", "0.1", "--quick", "--examples", "20", *CPU)


@pytest.mark.filterwarnings("ignore::pclc.evaluation.SetupWarning")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("audit", "run", "--dataset", "digits", "--device", "gpu"), "Expected `device` to be one that this machine"),
        ((*AUDIT, "--out", "file"), "Expected file to be a folder, but it is a file."),
        (("train", "digits", "--device", "gpu"), "but got 'gpu'"),
        (("bench", "loss", "--device", "gpu"), "Expected `device` to be one that this machine has"),
        (("verify", "run", "--model", "run"), "Expected a file, such as run/witnesses.safetensors, but got the folder"),
        (("train", "digits", "--out", "file", *CPU), "Expected file to be a folder"),
        (("train", "digits", "--epochs", "-3", *CPU), "Expected `epochs` to be a whole number of at least 1"),
        (("demo", "--out", "file", *CPU), "Expected file to be a folder"),
        (("report", "run", "--out", "empty"), "Expected --out to be a file, such as empty/report.html"),
        (("report", "run", "--out", "file/x.html"), "Expected file to be a folder"),
        (("report", "run", "--out", "run/model.json"), "Expected --out to be a page, such as report.html"),
        (("report", "run", "./run"), "but run was given twice."),
        (("reproduce", "table1", "--plan", "--threads", "0", *CPU), "Invalid value for '--threads'"),
        (("reproduce", "table1", "--plan", "--jobs", "0", *CPU), "Invalid value for '--jobs'"),
        (
            ("evaluate", "run", "--dataset", "digits", "--transfer-from", "run"),
            "Expected --transfer-from with --attack",
        ),
        (("evaluate", "run", "--eps", "0.1"), "Expected --eps with --attack"),
        (("evaluate", "--model", "lenet8", "--keep-examples"), "Expected --keep-examples with --out"),
        (("evaluate", "empty"), "Expected empty to hold a trained model, but it has no model.json"),
        (("audit", "begun"), "Expected begun to hold a trained model, but its training is not finished"),
        (("audit", "run", "--transfer-from", "begun"), "Expected begun to hold a trained model"),
        (("evaluate", "broken"), "Expected broken/config.json to be JSON"),
        (("evaluate", "foreign", "--dataset", "digits", *CPU), "--trust-factory on the command line"),
    ],
)
def test_a_mistake_ends_with_2(words: tuple[str, ...], sentence: str, command: Command) -> None:
    Path("file").write_text("")
    Path("empty").mkdir()
    saved("run")
    pclc.evaluate(pclc.load_model("run"), torch.rand(2, 1, 8, 8), torch.tensor([0, 1]), out="run")
    pclc.RunDirectory("begun").begin({"dataset": {"name": "digits"}})
    (saved("broken") / "config.json").write_text("{")
    model = json.loads((saved("foreign") / "model.json").read_text())
    model["model"]["name"] = "some.package:net"
    Path("foreign/model.json").write_text(json.dumps(model))
    assert sentence in command(*words, code=2).err


def test_a_crash_is_no_verdict(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyError("a fault of ours")

    saved("run")
    monkeypatch.setattr(pclc, "audit", crash)
    assert 70 not in audit_command.EXIT_CODES.values()
    assert "a fault of ours" in command(*AUDIT, code=70).err


def test_a_pipe_that_nobody_reads_is_no_verdict(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("pclc.cli.data.print_table", closed)
    monkeypatch.setattr(sys, "stdout", sys.stdout)  # which typer replaces
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    monkeypatch.setattr(sys, "argv", ["pclc", "data", "list"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 70


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            PermissionError(13, "Permission denied", "runs/x/.tmp-01ab23cd-config.json"),
            "Expected to read or write runs/x/config.json, but got: Permission denied.",
        ),
        (
            IsADirectoryError(21, "Is a directory", "a/.tmp-01ab23cd-b", None, "a/b"),
            "Expected a/b to be a file, but it is a folder.",
        ),
        (FileNotFoundError("Expected a run directory."), "Expected a run directory."),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
    ],
)
def test_what_the_system_says_becomes_a_sentence(error: OSError, sentence: str) -> None:
    assert _sentence(error) == sentence


def test_an_audit_that_keeps_nothing_says_so(command: Command, tmp_path: Path) -> None:
    words = ("audit", "--model", "lenet8", *AUDIT[2:])
    assert "this audit is not saved; --out FOLDER saves" in command(*words, code=3).err
    assert "not saved" not in command(*words, "--out", "kept", code=3).err
    assert (tmp_path / "kept" / "audit.json").is_file()


def test_an_interrupted_training_says_where_it_goes_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, out: Path, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pclc, "train", interrupted)
    words = ("train", "digits", "--out", "run", *CPU)
    assert "no checkpoint was written yet, so the same command starts again" in command(*words, code=130).err
    directory = pclc.RunDirectory("run")
    directory.begin({})
    directory.save_checkpoint({"history": [{"epoch": 1}, {"epoch": 2}]})
    assert "the same command resumes after epoch 2." in command(*words, code=130).err


@pytest.mark.parametrize(
    ("words", "name", "state"), [(EVALUATE, "evaluate", "evaluation"), (AUDIT, "audit", "audit-steps")]
)
def test_interrupted_attacks_say_what_is_kept(
    words: tuple[str, ...], name: str, state: str, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pclc, name, interrupted)
    saved("run")
    assert "no attack was finished yet, so the same command starts over" in command(*words, code=130).err
    Path("run", state).mkdir()
    Path("run", state, "0.safetensors").write_bytes(b"")
    said = command(*words, code=130).err
    assert f"results so far are in run/{state}, and the same command continues from there." in said
    elsewhere = (name, "--model", "lenet8", *words[2:])
    assert "nothing is saved without --out FOLDER" in command(*elsewhere, code=130).err


def test_an_interrupted_reproduction_goes_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pclc.cli.tables.run", interrupted)
    said = command("reproduce", "table1", "--datasets", "mnist", "--out", "store", *CPU, code=130).err
    assert "finished cells are in store, and the same command continues from there." in said


def test_an_interrupted_demo_goes_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pclc.experiments.demo.run_demo", interrupted)
    said = command("demo", *CPU, code=130).err
    assert "what is finished is in runs/demo, and the same command continues from there." in said


@pytest.mark.filterwarnings("default")
def test_warnings_are_sentences_and_what_is_replaced_is_told(command: Command) -> None:
    saved("run")
    command(*EVALUATE, "--attack", "fgsm(eps=0.1)")
    said = command(*EVALUATE, "--attack", "pgd(eps=0.1, alpha=0.001, steps=1)").err
    assert "pclc: 1 steps with alpha=0.001 move at most" in said
    assert "pclc: The evaluation in run had other attacks, which are no longer in it: fgsm(eps=0.1)." in said
    assert ".py" not in said
    assert "near chance" not in said  # which is in the notes below the table


@pytest.mark.filterwarnings("ignore::pclc.evaluation.SetupWarning")
def test_equal_figures_stay_in_their_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saved("run")
    monkeypatch.setattr(sys, "argv", ["pclc", *EVALUATE, "--attack", "noise(eps=1e-9, draws=1)"])
    with pytest.raises(SystemExit):
        main()
    heading = next(line for line in capfd.readouterr().out.splitlines() if "attack" in line and "seconds" in line)
    assert "accuracy" in heading  # though clean, attack and worst case have the same
    assert "interval" in heading


def test_paths_are_whole_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f"/data/{'long/' * 20}MNIST/raw"
    monkeypatch.setattr("pclc.cli.data._where", lambda name, root: place)
    monkeypatch.setattr(sys, "argv", ["pclc", "data", "list"])
    with pytest.raises(SystemExit):
        main()
    assert place in capfd.readouterr().out


def test_brackets_are_no_markup(capfd: pytest.CaptureFixture[str]) -> None:
    print_table([{"run": "runs/[red]x", "figure": 1.0}], title="of runs/[red]x")
    assert capfd.readouterr().out.count("runs/[red]x") == 2


def test_a_file_without_witnesses_shows_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    model, data = pclc.load_model(saved("run")), pclc.load_dataset("digits", "test")
    x = data.images[:2].float() / 255
    none = witnesses_of(
        pclc.evaluate(model, x, model.eval()(x).argmax(1)),  # no attack, and the model gets all of it right
        model,
        x,
        data.labels[:2],
        norm="Linf",
        eps=0.1,
        data=DataSource.of(data),
    )
    none.save("none.safetensors")
    monkeypatch.setattr(sys, "argv", ["pclc", "verify", "none.safetensors", "--model", "run", *CPU])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert capfd.readouterr().out.endswith("The file holds no witnesses, so it proves nothing.\n")


@pytest.mark.parametrize("width", [40, 80])
def test_nothing_is_cut_on_a_narrow_terminal(
    width: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pclc.cli.output.console", lambda: Console(width=width))
    attack = "pgd(eps=0.1, alpha=0.01, steps=40)"
    row = {"attack": attack, **{f"figure-{i}": 0.12345 for i in range(12)}, "none": "-"}
    print_table([row, row])
    said = " ".join(capfd.readouterr().out.split())
    assert "…" not in said
    assert said.count(f"{attack}: figure-0 {show(0.12345)}; figure-1") == 2
    assert "none" not in said
    print_table([{"attack": "two words", "figure": 0.5}])
    assert "━" in capfd.readouterr().out
