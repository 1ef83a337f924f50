"""``pclc audit``: is a claim of robustness true?"""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from pclc.cli.headings import on_machine, on_model
from pclc.cli.output import interruptible, print_table, what_is_found

EXIT_CODES = {"not refuted": 0, "refuted": 1, "cannot judge": 3}


def audit(
    run: Annotated[Path | None, typer.Argument(help="Run directory of pclc train.")] = None,
    eps: Annotated[str, typer.Option(help="Radius of the ball: 0.1, 8/255.")] = "8/255",
    claim: Annotated[
        float | None, typer.Option(help="The accuracy claimed at this eps, such as 0.53; by default that of PGD-40.")
    ] = None,
    norm: Annotated[str, typer.Option(help="Linf or L2.")] = "Linf",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and shorter attacks.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Standard AutoAttack on every example, and the rest.")] = False,
    examples: Annotated[int | None, typer.Option(help="Use only N, drawn at random; by default all.")] = None,
    transfer_from: Annotated[
        Path | None, typer.Option(help="Run directory of a twin trained with cross-entropy, for transfers.")
    ] = None,
    model: Annotated[str | None, on_model(help="A network, or package.module:factory, instead of a run.")] = None,
    weights: Annotated[Path | None, on_model(help="With --model: a .safetensors or torch.save file.")] = None,
    robustbench: Annotated[
        str | None, on_model(help="A name in RobustBench's zoo; --weights is the folder of its checkpoints.")
    ] = None,
    dataset: Annotated[str | None, on_model(help="Data set; by default the one of the run.")] = None,
    split: Annotated[str, on_model(help="test or train.")] = "test",
    loss: Annotated[
        str | None, typer.Option(help="Loss the model was trained with; by default what the run says.")
    ] = None,
    trust_factory: Annotated[
        bool, on_model("--trust-factory", help="Import the package.module:factory that a run directory names.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of all random numbers.")] = 0,
    batch_size: Annotated[int | None, on_machine(help="Examples per pass.")] = None,
    root: Annotated[Path | None, on_model(help="Folder with the data sets.")] = None,
    out: Annotated[
        Path | None, on_machine(help="Folder for audit.json and witnesses.safetensors; by default the run directory.")
    ] = None,
    device: Annotated[str | None, on_machine(help="cpu, cuda, cuda:1, ...")] = None,
    precision: Annotated[str, on_machine(help="Precision of crafting: auto, fp32, tf32, bf16.")] = "auto",
    compiled: Annotated[
        bool, on_machine("--compile", help="Compile the model; pays in long attacks on a GPU.")
    ] = False,
    checks: Annotated[bool, on_machine("--checks", help="Print every check, not only those that fired.")] = False,
    as_json: Annotated[bool, on_machine("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Judge a claim of robustness: refuted (exit code 1), not refuted (0), or cannot judge (3).

    A mistake in the command or in its files ends with 2, a crash with 70.

    Only adversarial examples that anybody can check refute; they are written to witnesses.safetensors
    (`pclc verify`). "Not refuted" is no proof of robustness.

    If it is killed, the same command continues where it stopped. Over several GPUs or hosts:
    `torchrun --nproc-per-node 8 -m pclc audit runs/x`, where the exit code is 0 for every verdict.

    Examples:

    - `pclc audit runs/x --eps 8/255`

    - `pclc audit runs/x --eps 0.3 --claim 0.53 --full`

    - `pclc audit --model my.package:network --weights net.pt --dataset cifar10 --eps 8/255 --quick --out audits/net`
    """
    import torch

    import pclc
    from pclc.cli.evaluate import local_execution, named_data
    from pclc.cli.sources import Source
    from pclc.cli.train import _number
    from pclc.evaluation import DataSource
    from pclc.evaluation.audit.document import STEPS, to_document

    if quick and full:
        raise ValueError("Expected one of --quick and --full, but got both.")
    if examples is not None and examples < 1:
        raise ValueError(f"Expected --examples to be at least 1, but got {examples}.")
    radius = _number("--eps", eps)
    source = Source(run, model, robustbench, weights, norm, trust_factory)
    twin_source = Source(transfer_from, trust_factory=trust_factory) if transfer_from else None
    execution = local_execution(device, precision, batch_size, compiled)
    data = named_data(dataset or source.dataset, split, root)
    network = source.load(data, execution)
    twin = twin_source.load(data, execution) if twin_source else None
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed % 2**63))
    chosen = order[: min(examples or len(data), len(data))].sort().values
    if out is None and run is None and os.environ.get("RANK", "0") == "0":
        typer.echo("pclc: this audit is not saved; --out FOLDER saves audit.json and the witnesses.", err=True)
    with interruptible(lambda: what_is_found(out or run, STEPS)):
        result = pclc.audit(
            network,
            data.images[chosen].float() / 255,
            data.labels[chosen],
            norm=norm,  # type: ignore[arg-type]
            eps=radius,
            claim=claim,
            mode="quick" if quick else "full" if full else "standard",
            seed=seed,
            index=chosen,
            loss=loss or source.loss,
            twin=twin,
            data=DataSource.of(data),
            out=out or run,
            execution=execution,
            progress=True,
            model_name=source.name,
            data_name=f"{data.name}, {split}",
        )
    under_torchrun = int(os.environ.get("WORLD_SIZE", "1")) > 1
    if os.environ.get("RANK", "0") != "0":
        return
    if as_json:
        typer.echo(json.dumps(to_document(result), indent=1))
    else:
        if checks and result.checks:
            print_table(result.rows())
        for line in result.lines():
            typer.echo(line)
        if not checks and result.checks:
            typer.echo(f"{len(result.checks)} checks, {len(result.fired)} fired; --checks shows all of them")
        if out or run:
            typer.echo(f"witnesses: {(out or run)}/witnesses.safetensors")
    if not under_torchrun:  # which takes any other code for a crash
        raise typer.Exit(EXIT_CODES[result.verdict])
