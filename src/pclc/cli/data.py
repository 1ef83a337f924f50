"""``pclc data``: list, download and verify the data sets."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from pclc.cli.output import print_table

data_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="markdown",
    help="List, download and verify the data sets.\n\n"
    "They are kept in torchvision's folders under `--root`, else `$PCLC_DATA`, else the user's cache folder: "
    "what torchvision has downloaded there is found.",
)

Root = Annotated[
    Path | None,
    typer.Option(help="The folder with the data sets; by default $PCLC_DATA, else the user's cache folder."),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]


def _where(name: str, root: Path | None) -> str:
    from pclc.data.description import SPLITS
    from pclc.data.registry import describe

    description = describe(name)
    if description.built_in:
        return "comes with scikit-learn"
    folder = description.folder(root)
    found = {split: paths for split in SPLITS if (paths := description.find(folder, split))}
    if not found:
        return "missing"
    first = next(iter(found.values()))[1][0]
    place = str(first.parent if first.parent != folder else first)
    return place if len(found) == len(SPLITS) else f"{place} ({', '.join(found)} only)"


@data_app.command("list")
def list_datasets(root: Root = None, as_json: Json = False) -> None:
    """List the data sets and where each was found.

    Examples:

    - `pclc data list`

    - `pclc data list --root ~/torchvision-data --json`
    """
    from pclc.data.registry import dataset_names, describe

    rows: list[dict[str, Any]] = [
        {
            "name": item.name,
            "train": item.counts["train"],
            "test": item.counts["test"],
            "classes": item.num_classes,
            "size": item.shape,
            "where": _where(item.name, root),
        }
        for item in map(describe, dataset_names())
    ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
    else:
        print_table([row | {"size": " x ".join(map(str, row["size"]))} for row in rows])


@data_app.command()
def fetch(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", help="Data sets, as in `pclc data list`.")],
    root: Root = None,
) -> None:
    """Download the official files into torchvision's folders and verify their checksums.

    Files that are already there are verified and kept. If one address fails, a second is tried where there is one.

    Examples:

    - `pclc data fetch mnist`

    - `pclc data fetch cifar10 svhn --root ~/data`
    """
    from pclc.data.fetch import fetch_dataset
    from pclc.data.registry import describe

    for name in names:
        describe(name)
    for name in names:
        paths = fetch_dataset(name, root)
        if not paths:
            typer.echo(f"{name}: comes with scikit-learn, nothing to download")
        for path in paths:
            typer.echo(f"{name}: {path}")


@data_app.command()
def check(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME...]", help="Data sets; by default all that are found.")
    ] = None,
    root: Root = None,
    as_json: Json = False,
) -> None:
    """Verify checksums, read every file and count the images; exit with 1 if something is wrong.

    A missing data set is an error only when it is named.

    Examples:

    - `pclc data check`

    - `pclc data check mnist cifar10 --json`
    """
    from pclc.data.check import check_dataset
    from pclc.data.registry import dataset_names

    checks = [check_dataset(name, root) for name in names or dataset_names()]
    wrong = [result for result in checks if result.problems and (names or not result.missing)]
    if as_json:
        rows = [{"name": result.name, "missing": result.missing, **asdict(result)} for result in checks]
        typer.echo(json.dumps(rows, indent=2, default=str))
    else:
        for result in checks:
            if result in wrong:
                state = "WRONG"
            elif result.missing:
                state = "missing"
            elif not result.files:
                state = "good, comes with scikit-learn"
            else:
                state = f"good, {len(result.verified)} of {len(result.files)} files verified by checksum"
            typer.echo(f"{result.name}: {state}")
            for problem in result.problems if result in wrong else ():
                typer.echo(f"  {problem}")
    if wrong:
        raise typer.Exit(1)
