"""The one command, ``pclc``, and what all its parts share."""

import sys
import traceback
import warnings
from pathlib import Path
from typing import Annotated, TextIO

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

# Neither is a verdict of `pclc audit`, which has 0, 1 and 3.
_MISTAKE, _CRASH = 2, 70

app = typer.Typer(
    name="pclc",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train classifiers with the PC-LC loss, attack them, and see how much robustness is really left.\n\n"
    "Start with `pclc demo`. Every command has `--help` with examples.",
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
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(prog_name="pclc")  # also under `python -m pclc`, whose name is no word to complete
    except SystemExit as end:
        if isinstance(end.__context__, BrokenPipeError):  # nobody reads on; typer ends with 1, as if it were a verdict
            sys.exit(_CRASH)
        raise
    except OSError as error:
        typer.echo(f"pclc: {_sentence(error)}", err=True)
        sys.exit(_MISTAKE)
    except (ValueError, ModuleNotFoundError, TrainingError) as error:
        typer.echo(f"pclc: {error}", err=True)
        sys.exit(_MISTAKE)
    except Exception:  # a fault of ours: Python itself would end with 1
        traceback.print_exc()
        sys.exit(_CRASH)


_show_elsewhere = warnings.showwarning


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning of this package is a sentence too; where it was raised says nothing to who types commands."""
    if category.__module__.partition(".")[0] == "pclc":
        typer.echo(f"pclc: {message}", err=True)
    else:
        _show_elsewhere(message, category, filename, lineno, file, line)


def _sentence(error: OSError) -> str:
    """What the system says of a path, as a sentence; the errors of this package are sentences already."""
    # Of two names the second is that of the file which was to appear under its own name.
    name = error.filename if error.filename2 is None else error.filename2
    if not isinstance(name, str | Path):
        return str(error)
    path = Path(name)
    if path.name.startswith(".tmp-"):  # what is written before it gets the name that the user knows
        path = path.with_name(path.name.split("-", 2)[2])
    if isinstance(error, FileExistsError | NotADirectoryError):
        path = next((part for part in (path, *path.parents) if part.is_file()), path)
        return f"Expected {path} to be a folder, but it is a file."
    if isinstance(error, IsADirectoryError):
        return f"Expected {path} to be a file, but it is a folder."
    return f"Expected to read or write {path}, but got: {error.strerror}."
