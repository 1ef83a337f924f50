"""``pclc demo``: the whole story, from training to the report."""

import json
import shlex
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pclc.cli.output import print_table


def demo(
    data: Annotated[
        str, typer.Option(help="Data set; digits come with scikit-learn, others must be on disk (pclc data fetch).")
    ] = "digits",
    out: Annotated[
        Path | None, typer.Option(help="Folder for runs and report; by default runs/demo, or runs/demo-DATA.")
    ] = None,
    examples: Annotated[
        int | None, typer.Option(help="Only the first so many test images; by default all digits, 1,000 of others.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Of each phase of training; by default as in the paper.")] = None,
    adversarial: Annotated[
        bool | None,
        typer.Option(help="Also train adversarially, which takes long on anything but digits; by default only there."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with the data sets.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train with cross-entropy, GCE and PC-LC, attack, audit, and write a report that shows what is left.

    On the digits, which need no download, it takes about a minute, and has an adversarially trained model beside the
    others. Interrupted at any moment, the same command goes on where it was.

    Examples:

    - `pclc demo`

    - `pclc demo --data mnist --device cuda`

    - `pclc demo --data mnist --epochs 3 --examples 500`
    """
    import torch

    import pclc
    from pclc.experiments.demo import run_demo
    from pclc.report import load_runs, write_report

    digits = data == "digits"
    if digits:
        # Images of 64 pixels give threads nothing to do but wait for each other, on a busy machine for minutes.
        torch.set_num_threads(1)
    out = out or Path("runs") / ("demo" if digits else f"demo-{data}")
    train, test = pclc.load_dataset(data, "train", root), pclc.load_dataset(data, "test", root)
    result = run_demo(
        train,
        test,
        out,
        pclc.Execution(device=device),
        examples=examples or (None if digits else 1000),
        epochs=epochs,
        adversarial=digits if adversarial is None else adversarial,
        progress=lambda text: typer.echo(text, err=True),
    )
    runs = load_runs(finding.run for finding in result.findings)
    page = write_report(
        runs, out / "report.html", budget=("Linf", result.eps), command=shlex.join(["pclc", *sys.argv[1:]])
    )
    sentences = result.sentences()
    look_next = f"All of it is in {page}; next: pclc audit {result.findings[-1].run} --eps {result.eps:.4g}"
    if as_json:
        rows = [{**asdict(finding), "run": str(finding.run)} for finding in result.findings]
        shown = {"dataset": data, "eps": result.eps, "examples": result.examples, "findings": rows}
        typer.echo(json.dumps({**shown, "sentences": sentences, "report": str(page)}, indent=1))
        return
    title = f"accuracy in % on {result.examples} test images of {data}, Linf eps {result.eps:.4g}, exact 95 % interval"
    print_table([finding.row() for finding in result.findings], title=title)
    for sentence in [*sentences, look_next]:
        typer.echo(sentence)
