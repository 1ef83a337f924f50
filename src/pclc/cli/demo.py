"""``pclc demo``: the whole story, from training to the report."""

import json
import os
import shlex
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pclc.cli.output import interruptible, print_table


def demo(
    data: Annotated[
        str, typer.Option(help="Data set: digits come with scikit-learn, others must be on disk (pclc data fetch).")
    ] = "digits",
    out: Annotated[
        Path | None, typer.Option(help="Folder for runs and report; by default runs/demo, or runs/demo-DATA.")
    ] = None,
    examples: Annotated[
        int | None,
        typer.Option(
            min=1, help="Test images, from the first on; by default all of the digits, 1,000 of others, 500 on a CPU."
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Epochs of each phase; by default the paper's, on a CPU at most 5 (except for the digits)."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="Network; by default the paper's, but lenet5 for colour images on a CPU."),
    ] = None,
    adversarial: Annotated[
        bool | None,
        typer.Option(help="Also train adversarially, which is slow on anything but the digits; by default only there."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with the data sets.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train with cross-entropy, GCE and PC-LC, attack, audit, and write a report that shows what is left.

    On the digits, which need no download, this takes a minute or two and includes an adversarially trained model. On a
    GPU, other data sets are trained as in the paper. On a CPU, the demo is cut to about ten minutes on two cores: fewer
    epochs and test images, and a small network for colour images; the page says so. If it is interrupted, the same
    command continues where it stopped.

    Examples:

    - `pclc demo`

    - `pclc demo --data mnist`

    - `pclc demo --data cifar10 --device cuda`

    - `pclc demo --data mnist --epochs 50 --examples 1000`
    """
    import torch

    import pclc
    from pclc.attacks.attack import number_text
    from pclc.experiments.demo import Extent, extent_of, run_demo
    from pclc.report import load_runs, write_report

    digits = data == "digits"
    if digits:
        # Images of 64 pixels give threads nothing to do but wait for each other, on a busy machine for minutes.
        torch.set_num_threads(1)
    out = out or Path("runs") / ("demo" if digits else f"demo-{data}")
    train, test = pclc.load_dataset(data, "train", root), pclc.load_dataset(data, "test", root)
    execution = pclc.Execution(device=device)
    usual = extent_of(train, execution.torch_device)
    with interruptible(lambda: f"what is finished is in {out}, and the same command continues from there."):
        result = run_demo(
            train,
            test,
            out,
            execution,
            extent=Extent(model or usual.model, epochs or usual.epochs, examples or usual.examples),
            adversarial=digits if adversarial is None else adversarial,
            progress=lambda text: typer.echo(text, err=True),
        )
    runs = load_runs(finding.run for finding in result.findings)
    page = write_report(
        runs,
        out / "report.html",
        budget=("Linf", result.eps),
        command=shlex.join(["pclc", *sys.argv[1:]]),
        notes=result.notes,
    )
    sentences = result.sentences()
    # make demo leaves the command in the environment it made, which is not on the path of the shell.
    command = "pclc" if shutil.which("pclc") else os.path.relpath(Path(sys.executable).with_name("pclc"))
    look_next = (
        f"Open {page} in a browser for the whole story. Next, try a longer audit: "
        f"{command} audit {shlex.quote(str(result.findings[-1].run))} --eps {number_text(result.eps)}"
    )
    if as_json:
        rows = [{**asdict(finding), "run": str(finding.run)} for finding in result.findings]
        shown = {"dataset": data, "eps": result.eps, "examples": result.examples, "findings": rows}
        typer.echo(json.dumps({**shown, "sentences": sentences, "report": str(page)}, indent=1))
        return
    title = f"accuracy in % on {result.examples} test images of {data}, Linf eps {result.eps:.4g}, exact 95 % interval"
    print_table([finding.row() for finding in result.findings], title=title)
    for sentence in [*sentences, look_next]:
        typer.echo(sentence)
