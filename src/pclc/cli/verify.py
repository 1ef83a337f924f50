"""``pclc verify``: are these adversarial examples what they claim to be?"""

import json
from pathlib import Path
from typing import Annotated

import typer


def verify(
    witnesses: Annotated[Path, typer.Argument(help="File of witnesses, as an audit writes it.")],
    model: Annotated[
        str | None, typer.Option(help="A run directory, a network, or package.module:factory with --weights.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="With --model: a .safetensors or torch.save file.")] = None,
    robustbench: Annotated[str | None, typer.Option(help="A name in RobustBench's zoo.")] = None,
    threat_model: Annotated[str, typer.Option(help="With --robustbench: Linf or L2.")] = "Linf",
    dataset: Annotated[str | None, typer.Option(help="Data set; by default the one that the file names.")] = None,
    split: Annotated[str | None, typer.Option(help="test or train; by default the one that the file names.")] = None,
    trust_factory: Annotated[
        bool, typer.Option("--trust-factory", help="Import the package.module:factory that a run directory names.")
    ] = False,
    root: Annotated[Path | None, typer.Option(help="Folder with the data sets.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Check adversarial examples against the model and the original images, without trusting the file.

    One forward pass in float32 and one in float64. The exit code is 0 where every example is inside the ball and fools
    the model, and 1 otherwise. What else the file says, such as the hash of its model, may differ.

    Examples:

    - `pclc verify runs/x/witnesses.safetensors --model runs/x`

    - `pclc verify w.safetensors --model my.package:network --weights net.pt --dataset cifar10`
    """
    from pclc.cli.evaluate import local_execution, named_data
    from pclc.cli.sources import Source
    from pclc.evaluation import load_witnesses
    from pclc.evaluation import verify as check
    from pclc.evaluation.audit.document import WITNESSES

    if witnesses.is_dir():
        raise ValueError(f"Expected a file, such as {witnesses / WITNESSES}, but got the folder {witnesses}.")
    claimed = load_witnesses(witnesses)
    run = Path(model) if model is not None and Path(model).is_dir() else None
    source = Source(run, None if run else model, robustbench, weights, threat_model, trust_factory)
    execution = local_execution(device)
    told = claimed.data
    name = dataset or (told.name if told else source.dataset)
    data = named_data(name, split or (told.split if told else "test"), root)
    network = source.load(data, execution)
    # The data that the file names are checked by their hash; data named here are taken at the user's word.
    given = (None, None) if told and dataset is None and split is None else (data.images, data.labels)
    found = check(claimed, network, *given, root=root, execution=execution)
    if as_json:
        document = {
            "holds": found.holds,
            "verified": found.count,
            "witnesses": len(claimed),
            "norm": claimed.norm,
            "eps": claimed.eps,
            "data": f"{data.name}, {data.split}",
            "checks": [check._asdict() for check in found.checks],
            "failed": claimed.index[~found.verified].tolist(),
        }
        typer.echo(json.dumps(document, indent=1))
    else:
        typer.echo(
            f"{witnesses}: {len(claimed)} witnesses against {source.name} on {data.name}, {data.split}, "
            f"{claimed.norm} eps {claimed.eps:.6g}"
        )
        typer.echo(str(found))
        if len(claimed) == 0:
            typer.echo("The file holds no witnesses, so it proves nothing.")
    raise typer.Exit(0 if found.holds else 1)
