"""What commands do and print, as a user types them."""

import json
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
from typed_command import Command


def test_a_new_process_names_version_torch_and_device() -> None:
    done = subprocess.run([sys.executable, "-m", "pclc", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("pclc 0.1.0, torch 2.")


@pytest.mark.parametrize("words", [(), ("train",), ("data",), ("bench",), ("bench", "loss"), ("bench", "train")])
def test_help_teaches(command: Command, words: tuple[str, ...]) -> None:
    shown = command(*words, "-h").out
    assert f"Usage: {' '.join(('pclc', *words))} " in shown


def test_train(command: Command, tmp_path: Path) -> None:
    arguments = ("train", "digits", "--loss", "ce", "--epochs", "2", "--device", "cpu")
    done = command(*arguments)
    assert "runs/digits-lenet8-ce-0: accuracy 0." in done.out
    again = command(*arguments, "--json")
    result = json.loads(again.out)
    assert result["epochs"] == 4
    assert result["test_examples"] == 360
    other = command(*arguments, "--seed", "1", "--out", "runs/digits-lenet8-ce-0", code=2)
    assert "holds another one (different: train.seed 0 -> 1)" in other.err


def test_a_mistake_ends_in_a_sentence(command: Command, tmp_path: Path) -> None:
    for arguments, sentence in [
        (("train", "digitz"), "digits"),
        (("train", "digits", "--loss", "hinge"), "Expected `loss` to be one of"),
        (("train", "digits", "--epochs", "0"), "Expected `epochs`"),
        (("audit", "nowhere"), "Expected a run directory of pclc train, such as runs/x, but got 'nowhere'"),
        (("bench", "loss", "--shape", "10"), "Expected --shape as N x K"),
        (("bench", "loss", "--dtype", "fp8"), "Expected --dtype to be one of fp32, bf16"),
    ]:
        done = command(*arguments, code=2)
        assert sentence in done.err


def test_bench_loss_and_page(command: Command, tmp_path: Path) -> None:
    save = tmp_path / "results" / "loss.json"
    done = command(
        "bench",
        "loss",
        "--device",
        "cpu",
        "--shape",
        "64x10",
        "--rounds",
        "2",
        "--no-compiled",
        "--save",
        save,
        "--json",
    )
    result = json.loads(done.out)
    assert [(row["dtype"], row["rows"]) for row in result["rows"]] == [
        ("fp32", "random"), ("fp32", "confident"), ("bf16", "random"), ("bf16", "confident"),
    ]  # fmt: skip
    assert json.loads(save.read_text()) == result
    assert result["command"] == "pclc bench loss --device cpu --shape 64x10 --rounds 2 --no-compiled"
    assert all(row["PC-LC ms"] > 0 and row["PC-LC / CE"] > 0 for row in result["rows"])
    page = tmp_path / "performance.md"
    command("bench", "page", "--results", save.parent, "--out", page)
    assert f"{result['rows'][0]['PC-LC ms']:.4g}" in page.read_text()


def test_what_was_measured_is_shown_also_where_it_cannot_be_kept(command: Command, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = ("--device", "cpu", "--shape", "64x10", "--dtype", "fp32", "--rounds", "1", "--no-compiled", "--json")
    done = command("bench", "loss", *arguments, "--save", tmp_path / "file" / "x.json", code=2)
    assert len(json.loads(done.out)["rows"]) == 2
    assert "to be a folder, but it is a file" in done.err


def test_bench_train(command: Command) -> None:
    done = command("bench", "train", "digits", "--epochs", "2", "--device", "cpu", "--json")
    rows = json.loads(done.out)["rows"]
    assert [row["variant"] for row in rows] == ["plain loop, ce", "pclc, ce", "pclc, pc-lc"]
    assert all(row["img/s"] > 0 for row in rows)


def test_bench_accuracy(command: Command, tmp_path: Path) -> None:
    save = tmp_path / "accuracy.json"
    command("bench", "accuracy", "digits", "--epochs", "3", "--seeds", "2", "--device", "cpu", "--save", save)
    (row,) = json.loads(save.read_text())["rows"]
    assert row["seeds"] == 2
    first, second = (float(value) for value in row["accuracy %"].split(", "))
    assert row["mean"] == pytest.approx((first + second) / 2, abs=0.01)


def test_bench_attack(command: Command, tmp_path: Path) -> None:
    command("train", "digits", "--loss", "ce", "--epochs", "3", "--device", "cpu", "--out", tmp_path / "run")
    arguments = ("bench", "attack", tmp_path / "run", "--examples", "100", "--rounds", "1", "--device", "cpu")
    rows = json.loads(command(*arguments, "--attack", "pgd(eps=0.2, alpha=0.02, steps=10)", "--json").out)["rows"]
    never, success = rows[:2]
    assert [row["variant"] for row in rows[:2]] == ['pclc, stop="never"', 'pclc, stop="success"']
    assert success["accuracy %"] <= never["accuracy %"] < 90
    saved = tmp_path / "saved.json"
    alone = command(*arguments, "--attack", "fgsm(eps=0.1)", "--save", saved)  # which no peer is timed with
    assert 'pclc, stop="success": run 2' in alone.err
    rows = json.loads(saved.read_text())["rows"]
    assert [(row["variant"], row["runs"], row["times the fastest peer"]) for row in rows] == [
        ('pclc, stop="success"', 2, None)
    ]


def test_bench_passes(command: Command, tmp_path: Path) -> None:
    save = tmp_path / "results" / "passes.json"
    options = ("--network", "vgg13", "--batch-size", "4", "--rounds", "2", "--device", "cpu", "--save", save)
    command("bench", "passes", *options)
    rows = json.loads(save.read_text())["rows"]
    asked = ("logits", "gradients", "exact logits")
    assert [(row["pass"], row["variant"]) for row in rows] == list(product(asked, ("plain", "pclc")))
    for plain, ours in zip(rows[::2], rows[1::2], strict=True):
        assert plain["times the plain one"] == 1
        assert ours["img/s"] == pytest.approx(4e3 / ours["ms"])
        assert 0.05 < ours["times the plain one"] < 20
    command("bench", "page", "--results", save.parent, "--out", tmp_path / "page.md")
    assert "## Passes through a network" in (tmp_path / "page.md").read_text()


def test_bench_train_adversarial(command: Command) -> None:
    done = command(
        *(
            "bench",
            "train",
            "digits",
            "--adversarial",
            "fast",
            "--loss",
            "ce",
            "--epochs",
            "1",
            "--device",
            "cpu",
            "--json",
        )
    )
    (row,) = json.loads(done.out)["rows"]
    assert row["adversarial"] == "fast, 1 steps"
    assert row["variant"] == "pclc, ce"
