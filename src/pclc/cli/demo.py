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
        str, typer.Option(help="Data set; digits come with scikit-learn, others must be on disk (pclc data fetch).")
    ] = "digits",
    out: Annotated[
        Path | None, typer.Option(help="Folder for runs and report; by default runs/demo, or runs/demo-DATA.")
    ] = None,
    examples: Annotated[
        int | None,
        typer.Option(
            min=1, help="Only the first so many test images; by default all digits, 1,000 of others, 500 on a CPU."
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Of each phase of training; by default as in the paper, on a CPU at most 5 (but for digits)."
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A network; by default the paper's, and lenet5 for colour images on a CPU."),
    ] = None,
    adversarial: Annotated[
        bool | None,
        typer.Option(help="Also train adversarially, which takes long on anything but digits; by default only there."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with the data sets.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train with cross-entropy, GCE and PC-LC, attack, audit, and write a report that shows what is left.

    On the digits, which need no download, it takes a minute or two, and has an adversarially trained model beside the
    others. Other data sets are trained as in the paper on a GPU. On a CPU the demo is cut short, to about ten minutes
    on two cores: fewer epochs and test images, and a small network for colour images; the page says so. Interrupted at
    any moment, the same command goes on where it was.

    Examples:

    - `pclc demo`

    - `pclc demo --data mnist`

    - `pclc demo --data cifar10 --device cuda`

    - `pclc demo --data mnist --epochs 50 --examples 1000`
    """
    import torch

    import pclc
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
    with interruptible(lambda: f"what is finished is in {out}, and the same command goes on there."):
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
        f"Open {page} in a browser: all of it is there. Next, a longer audit: "
        f"{command} audit {shlex.quote(str(result.findings[-1].run))} --eps {result.eps:.4g}"
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
