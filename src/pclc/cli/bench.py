"""``pclc bench``: how fast, beside what, under which conditions."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pclc.cli.output import print_table

bench_app = typer.Typer(no_args_is_help=True, help="Measure speed and memory, side by side with the alternatives.")

Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...; CUDA where there is one if left out.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")]
Save = Annotated[Path | None, typer.Option(help="Also write the result to this JSON file, for `pclc bench page`.")]


def _finish(result: Any, as_json: bool, save: Path | None) -> None:
    if save:
        result.save(save)
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=1))
    else:
        print_table(result.rows, title="; ".join(f"{name} {value}" for name, value in result.conditions.items()))


@bench_app.command()
def loss(
    device: Device = None,
    shapes: Annotated[
        list[str] | None, typer.Option("--shape", help="N x K, as in 8192x1000; may be given again.")
    ] = None,
    dtypes: Annotated[list[str] | None, typer.Option("--dtype", help="fp32 or bf16; may be given again.")] = None,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds in which the variants take turns.")] = 9,
    compiled: Annotated[bool, typer.Option(help="Also time cross-entropy under torch.compile.")] = True,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """PC-LC against eager and compiled cross-entropy and the naive formula, forward + backward.

    Example: `pclc bench loss --device cpu --shape 8192x1000 --dtype fp32`
    """
    import torch

    from pclc.bench.loss import DTYPES, SHAPES, bench_loss

    for name in dtypes or []:
        if name not in DTYPES:
            raise ValueError(f"Expected --dtype to be one of {', '.join(DTYPES)}, but got {name!r}.")
    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    result = bench_loss(
        chosen,
        [_shape(text) for text in shapes] if shapes else SHAPES,
        dtypes or tuple(DTYPES),
        rounds,
        compiled,
        report=lambda row: typer.echo(f"{row['N']} x {row['K']} {row['dtype']} {row['rows']}: done", err=True),
    )
    _finish(result, as_json, save)


@bench_app.command()
def page(
    results: Annotated[Path, typer.Option(help="Folder with the saved results.")] = Path("results/bench"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/performance.md"),
) -> None:
    """Write the page of measured figures from saved results."""
    from pclc.bench.page import write_page

    typer.echo(f"{out}: {write_page(results, out)} results")


def _shape(text: str) -> tuple[int, int]:
    try:
        N, K = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise ValueError(f"Expected --shape as N x K, for example 8192x1000, but got {text!r}.") from None
    return N, K
