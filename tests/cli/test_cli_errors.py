"""How commands end: a mistake in a sentence and with 2, a crash with 70, and neither with a verdict of the audit."""

import json
import sys
from pathlib import Path

import pytest
import torch

import pclc
from pclc.cli import audit as audit_command
from pclc.cli.app import _sentence, main

CPU = ("--device", "cpu")


class Command:
    """Runs the command in this process, in a folder of its own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str, code: int = 2) -> str:
        """What it says on the error stream."""
        self.monkeypatch.setattr(sys, "argv", ["pclc", *words])
        with pytest.raises(SystemExit) as end:
            main()
        said = self.capsys.readouterr().err
        assert end.value.code == code, said
        assert ("Traceback" in said) == (code == 70)
        return said


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)  # the demo would set those of the other tests too
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    return Command(monkeypatch, capsys)


def saved(folder: str, seed: int = 0) -> Path:
    """A folder with a model that knows nothing."""
    torch.manual_seed(seed)
    pclc.save_model(pclc.create_model("lenet8", in_channels=1, image_size=8), folder)
    return Path(folder)


AUDIT = ("audit", "run", "--dataset", "digits", "--eps", "0.1", "--quick", "--examples", "20", *CPU)


@pytest.mark.filterwarnings("ignore::pclc.evaluation.SetupWarning")
@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("audit", "run", "--dataset", "digits", "--device", "gpu"), "Expected `device` to be one that this machine"),
        ((*AUDIT, "--out", "file"), "Expected file to be a folder, but it is a file."),
        (("train", "digits", "--device", "gpu"), "but got 'gpu'"),
        (("train", "digits", "--out", "file", *CPU), "Expected file to be a folder"),
        (("demo", "--out", "file", *CPU), "Expected file to be a folder"),
        (("report", "run", "--out", "empty"), "Expected --out to be a file, such as empty/report.html"),
        (("report", "run", "--out", "file/x.html"), "Expected file to be a folder"),
        (("evaluate", "run", "--eps", "0.1"), "Expected --eps with --attack"),
        (("evaluate", "--model", "lenet8", "--keep-examples"), "Expected --keep-examples with --out"),
        (("evaluate", "empty"), "Expected empty to hold a trained model, but there is none"),
        (("audit", "begun"), "Expected begun to hold a trained model, but its training is not finished"),
        (("audit", "run", "--transfer-from", "begun"), "Expected begun to hold a trained model"),
        (("evaluate", "broken"), "Expected broken/config.json to be JSON"),
        (("evaluate", "foreign", "--dataset", "digits", *CPU), "--trust-factory on the command line"),
    ],
)
def test_a_mistake_ends_with_2(words: tuple[str, ...], sentence: str, command: Command) -> None:
    saved("run")
    pclc.evaluate(pclc.load_model("run"), torch.rand(2, 1, 8, 8), torch.tensor([0, 1]), out="run")
    pclc.RunDirectory("begun").begin({"dataset": {"name": "digits"}})
    (saved("broken") / "config.json").write_text("{")
    model = json.loads((saved("foreign") / "model.json").read_text())
    model["model"]["name"] = "some.package:net"
    Path("foreign/model.json").write_text(json.dumps(model))
    assert sentence in command(*words)


def test_a_crash_is_no_verdict(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyError("a fault of ours")

    saved("run")
    monkeypatch.setattr(pclc, "audit", crash)
    assert 70 not in audit_command.EXIT_CODES.values()
    assert "a fault of ours" in command(*AUDIT, code=70)


def test_a_pipe_that_nobody_reads_is_no_verdict(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(*_: object, **__: object) -> None:
        raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setattr("pclc.cli.data.console", closed)
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
    assert "nothing is kept of this audit; --out FOLDER keeps" in command(*words, code=3)
    assert "nothing is kept" not in command(*words, "--out", "kept", code=3)
    assert (tmp_path / "kept" / "audit.json").is_file()


def test_an_interrupted_training_says_where_it_goes_on(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, out: Path, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pclc, "train", interrupted)
    words = ("train", "digits", "--out", "run", *CPU)
    assert "no checkpoint was due yet, so that the same command begins anew" in command(*words, code=130)
    directory = pclc.RunDirectory("run")
    directory.begin({})
    directory.save_checkpoint({"history": [{"epoch": 1}, {"epoch": 2}]})
    assert "the same command goes on after epoch 2." in command(*words, code=130)


def test_paths_are_whole_in_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    place = f"/data/{'long/' * 20}MNIST/raw"
    monkeypatch.setattr("pclc.cli.data._where", lambda name, root: place)
    monkeypatch.setattr(sys, "argv", ["pclc", "data", "list"])
    with pytest.raises(SystemExit):
        main()
    assert place in capfd.readouterr().out
