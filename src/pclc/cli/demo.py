"""``pclc demo``: the story in a minute."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from pclc.cli.output import print_table


def demo(
    data: Annotated[
        str, typer.Option(help="Data set; digits come with scikit-learn, others must be on disk.")
    ] = "digits",
    eps: Annotated[
        float | None, typer.Option(help="Radius of the attacks, in units of the pixels' range [0, 1].")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the two runs.")] = Path("runs/demo"),
    root: Annotated[Path | None, typer.Option(help="Folder with the data sets.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train with cross-entropy and with PC-LC, attack both, and see what is left.

    Example: `pclc demo`
    """
    import pclc
    from pclc.experiments.demo import default_eps, run_demo

    train = pclc.load_dataset(data, "train", root)
    result = run_demo(
        train,
        pclc.load_dataset(data, "test", root),
        out / data,
        default_eps(train) if eps is None else eps,
        pclc.Execution(device=device),
        progress=lambda text: typer.echo(text, err=True),
    )
    if as_json:
        typer.echo(json.dumps({**asdict(result), "sentences": result.sentences()}, indent=1))
        return
    print_table(result.rows(), title=f"accuracy in % on {result.examples} test images of {data}, eps {result.eps:.4g}")
    for sentence in result.sentences():
        typer.echo(sentence)
