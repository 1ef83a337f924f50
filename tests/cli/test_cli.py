"""The command as a user types it."""

import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


def pclc(*arguments: str | Path, code: int = 0, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pclc", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=ENVIRONMENT, check=False)
    assert done.returncode == code, done.stderr
    return done


def test_version_names_torch_and_device() -> None:
    assert pclc("--version").stdout.startswith("pclc 0.1.0, torch 2.")


@pytest.mark.parametrize("command", [(), ("train",), ("data",), ("bench",), ("bench", "loss"), ("bench", "train")])
def test_help_teaches(command: tuple[str, ...]) -> None:
    shown = pclc(*command, "-h").stdout
    assert f"Usage: {' '.join(('pclc', *command))} " in shown


def test_train(tmp_path: Path) -> None:
    arguments = ("train", "digits", "--loss", "ce", "--epochs", "2", "--device", "cpu")
    done = pclc(*arguments, cwd=tmp_path)
    assert "runs/digits-lenet8-ce-0: accuracy 0." in done.stdout
    again = pclc(*arguments, "--json", cwd=tmp_path)
    result = json.loads(again.stdout)
    assert result["epochs"] == 4
    assert result["test_examples"] == 360
    other = pclc(*arguments, "--seed", "1", "--out", "runs/digits-lenet8-ce-0", code=2, cwd=tmp_path)
    assert "holds another one (different: train.seed 0 -> 1)" in other.stderr
    assert "Traceback" not in other.stderr


def test_a_mistake_ends_in_a_sentence(tmp_path: Path) -> None:
    for arguments, sentence in [
        (("train", "digitz"), "digits"),
        (("train", "digits", "--loss", "hinge"), "Expected `loss` to be one of"),
        (("train", "digits", "--epochs", "0"), "Expected `epochs`"),
        (("audit", "nowhere"), "Expected a run directory of pclc train, such as runs/x, but got 'nowhere'"),
        (("bench", "loss", "--shape", "10"), "Expected --shape as N x K"),
        (("bench", "loss", "--dtype", "fp8"), "Expected --dtype to be one of fp32, bf16"),
    ]:
        done = pclc(*arguments, code=2, cwd=tmp_path)
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr


def test_bench_loss_and_page(tmp_path: Path) -> None:
    save = tmp_path / "results" / "loss.json"
    done = pclc(
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
    result = json.loads(done.stdout)
    assert [(row["dtype"], row["rows"]) for row in result["rows"]] == [
        ("fp32", "random"), ("fp32", "confident"), ("bf16", "random"), ("bf16", "confident"),
    ]  # fmt: skip
    assert json.loads(save.read_text()) == result
    assert result["command"] == "pclc bench loss --device cpu --shape 64x10 --rounds 2 --no-compiled"
    assert all(row["PC-LC ms"] > 0 and row["PC-LC / CE"] > 0 for row in result["rows"])
    page = tmp_path / "performance.md"
    pclc("bench", "page", "--results", save.parent, "--out", page)
    assert f"{result['rows'][0]['PC-LC ms']:.4g}" in page.read_text()


def test_what_was_measured_is_shown_also_where_it_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    arguments = ("--device", "cpu", "--shape", "64x10", "--dtype", "fp32", "--rounds", "1", "--no-compiled", "--json")
    done = pclc("bench", "loss", *arguments, "--save", tmp_path / "file" / "x.json", code=2)
    assert len(json.loads(done.stdout)["rows"]) == 2
    assert "to be a folder, but it is a file" in done.stderr


def test_bench_train() -> None:
    done = pclc("bench", "train", "digits", "--epochs", "2", "--device", "cpu", "--json")
    rows = json.loads(done.stdout)["rows"]
    assert [row["variant"] for row in rows] == ["plain loop, ce", "pclc, ce", "pclc, pc-lc"]
    assert all(row["img/s"] > 0 for row in rows)


def test_bench_accuracy(tmp_path: Path) -> None:
    save = tmp_path / "accuracy.json"
    pclc("bench", "accuracy", "digits", "--epochs", "3", "--seeds", "2", "--device", "cpu", "--save", save)
    (row,) = json.loads(save.read_text())["rows"]
    assert row["seeds"] == 2
    first, second = (float(value) for value in row["accuracy %"].split(", "))
    assert row["mean"] == pytest.approx((first + second) / 2, abs=0.01)


def test_bench_attack(tmp_path: Path) -> None:
    pclc("train", "digits", "--loss", "ce", "--epochs", "3", "--device", "cpu", "--out", tmp_path / "run")
    arguments = ("bench", "attack", tmp_path / "run", "--examples", "100", "--rounds", "1", "--device", "cpu")
    rows = json.loads(pclc(*arguments, "--attack", "pgd(eps=0.2, alpha=0.02, steps=10)", "--json").stdout)["rows"]
    never, success = rows[:2]
    assert [row["variant"] for row in rows[:2]] == ['pclc, stop="never"', 'pclc, stop="success"']
    assert success["accuracy %"] <= never["accuracy %"] < 90
    saved = tmp_path / "saved.json"
    alone = pclc(*arguments, "--attack", "fgsm(eps=0.1)", "--save", saved)  # which no peer is timed with
    assert 'pclc, stop="success": run 2' in alone.stderr
    rows = json.loads(saved.read_text())["rows"]
    assert [(row["variant"], row["runs"], row["times the fastest peer"]) for row in rows] == [
        ('pclc, stop="success"', 2, None)
    ]


def test_bench_passes(tmp_path: Path) -> None:
    save = tmp_path / "results" / "passes.json"
    options = ("--network", "vgg13", "--batch-size", "4", "--rounds", "2", "--device", "cpu", "--save", save)
    pclc("bench", "passes", *options)
    rows = json.loads(save.read_text())["rows"]
    asked = ("logits", "gradients", "exact logits")
    assert [(row["pass"], row["variant"]) for row in rows] == list(product(asked, ("plain", "pclc")))
    for plain, ours in zip(rows[::2], rows[1::2], strict=True):
        assert plain["times the plain one"] == 1
        assert ours["img/s"] == pytest.approx(4e3 / ours["ms"])
        assert 0.05 < ours["times the plain one"] < 20
    pclc("bench", "page", "--results", save.parent, "--out", tmp_path / "page.md")
    assert "## Passes through a network" in (tmp_path / "page.md").read_text()


def test_bench_train_adversarial() -> None:
    done = pclc(
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
    (row,) = json.loads(done.stdout)["rows"]
    assert row["adversarial"] == "fast, 1 steps"
    assert row["variant"] == "pclc, ce"
