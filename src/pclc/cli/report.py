"""``pclc report``: one page about runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from pclc.attacks.types import Norm


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run directories, or folders of them.")],
    out: Annotated[
        Path | None, typer.Option(help="The page; by default report.html in the given folder, or here for several.")
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Robustness report",
    eps: Annotated[
        str | None, typer.Option(help="Eps of the summary, such as 8/255; by default that of the audits.")
    ] = None,
    norm: Annotated[str, typer.Option(help="With --eps: Linf or L2.")] = "Linf",
    inspect: Annotated[
        str | None,
        typer.Option(help="First inspect each model under this attack: images, confusion, t-SNE (inspection.json)."),
    ] = None,
    trust_factory: Annotated[
        bool, typer.Option("--trust-factory", help="Import the package.module:factory that a run directory names.")
    ] = False,
    root: Annotated[Path | None, typer.Option(help="With --inspect: folder with the data sets.")] = None,
    device: Annotated[str | None, typer.Option(help="With --inspect: cpu, cuda, cuda:1, ...")] = None,
) -> None:
    """Write one self-contained HTML page about run directories, from their result files alone.

    The page opens from disk, loads nothing, and shows what the runs hold: accuracy over eps, audits, images, training,
    conditions, and the commands that repeat it all.

    Examples:

    - `pclc report runs/x`

    - `pclc report runs/ce runs/pc-lc --eps 0.3 --out comparison.html`

    - `pclc report runs/x --inspect 'pgd(eps=0.3, alpha=0.01, steps=40, objective="margin")'`
    """
    from pclc.attacks.validate import check_ball
    from pclc.cli.train import _number
    from pclc.experiments.pages_text import counted
    from pclc.report import load_runs, write_report
    from pclc.report.runs import is_same

    budget: tuple[Norm, float] | None = None
    if eps is not None:
        radius = _number("--eps", eps)
        check_ball(radius, norm)
        budget = ("L2" if norm == "L2" else "Linf", radius)
    if out is not None and out.is_dir():
        raise ValueError(f"Expected --out to be a file, such as {out / 'report.html'}, but got a folder.")
    if out is not None and out.suffix.lower() not in (".html", ".htm"):  # or a result file is lost to a slip
        raise ValueError(f"Expected --out to be a page, such as report.html, but got {out}.")
    found = load_runs(runs, trust_factory=trust_factory)
    if inspect is not None:
        for run in found:
            typer.echo(f"inspecting {run.path}", err=True)
            _inspect(run.path, inspect, trust_factory, root, device)
        found = load_runs(runs, trust_factory=trust_factory)
    if budget is not None and not any(is_same(own, budget) for run in found for own in run.budgets):
        raise ValueError(f"Expected --eps and --norm of an attack or audit in the runs, but got {norm} {eps}.")
    page = write_report(
        found, out or (runs[0] if len(runs) == 1 else Path()) / "report.html", title=title, budget=budget
    )
    typer.echo(f"{page}: {counted(len(found), 'run')}, {page.stat().st_size / 1e6:.2f} MB")


def _inspect(run: Path, text: str, trust_factory: bool, root: Path | None, device: str | None) -> None:
    """Write `inspection.json`: on as many test images as the run's evaluation has, with ranks of FGSM over its eps."""
    from pclc.analysis.inspection import inspect_model, save_inspection
    from pclc.attacks import FGSM, parse_attack
    from pclc.cli.evaluate import local_execution, named_data
    from pclc.cli.sources import Source
    from pclc.evaluation import load_evaluation

    attack, source = parse_attack(text), Source(run, trust_factory=trust_factory)
    execution = local_execution(device)
    data = named_data(source.dataset, "test", root)
    measured = load_evaluation(run) if (run / "evaluation.json").is_file() else None
    n = min(measured.n, len(data)) if measured else len(data)
    radii = sorted({eps for norm, eps in measured.budgets if norm == "Linf" and eps}) if measured else []
    place = execution.torch_device
    found = inspect_model(
        source.load(data, execution),
        (data.images[:n].float() / 255).to(place),
        data.labels[:n].to(place),
        data.classes,
        attack,
        [FGSM(eps, stop="never") for eps in radii],
        data_name=f"{data.name}, {data.split}",
        execution=execution,
    )
    save_inspection(found, run)
