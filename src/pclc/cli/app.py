"""The one command, ``pclc``, and what all its parts share."""

import sys
from typing import Annotated

import typer

from pclc.cli.audit import audit
from pclc.cli.bench import bench_app
from pclc.cli.data import data_app
from pclc.cli.demo import demo
from pclc.cli.evaluate import evaluate
from pclc.cli.report import report
from pclc.cli.reproduce import reproduce
from pclc.cli.train import train
from pclc.cli.verify import verify
from pclc.training import TrainingError

app = typer.Typer(
    name="pclc",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="Train classifiers with the PC-LC loss, attack them, and see the robustness that is really left.\n\n"
    "Begin with `pclc demo`. Each command has `--help` with examples.",
)
app.command()(demo)
app.command()(train)
app.command()(evaluate)
app.command()(audit)
app.command()(verify)
app.command()(report)
app.command()(reproduce)
app.add_typer(data_app, name="data")
app.add_typer(bench_app, name="bench")


def _print_version(wanted: bool) -> None:
    if wanted:
        import torch

        from pclc import __version__

        device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
        typer.echo(f"pclc {__version__}, torch {torch.__version__}, {device}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show versions and device.")
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run the command; a mistake of the user's ends in one sentence, not in a traceback."""
    try:
        app()
    except (ValueError, FileNotFoundError, ModuleNotFoundError, TrainingError) as error:
        typer.echo(f"pclc: {error}", err=True)
        sys.exit(2)
