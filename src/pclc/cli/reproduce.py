"""``pclc reproduce``: the tables and figures of the paper, beside the published figures."""

import json
import os
import time
from collections import Counter
from pathlib import Path
from typing import Annotated

import typer

from pclc.cli.output import interruptible


def reproduce(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="EXPERIMENT",
            help="table1 ... table5, figure1 ... figure3, gaps, masking, schedules, learning-rate, dropout, "
            "augmentation, cw-space, spsa-steps, precision, training-precision, adversarial, all, or a TOML file; "
            "several share models and attacks.",
        ),
    ],
    datasets: Annotated[list[str] | None, typer.Option(help="Only this data set; may be given again.")] = None,
    losses: Annotated[
        list[str] | None, typer.Option(help="Only this column, such as ce or pc-lc; may be given again.")
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How many; by default as many as the experiment has.")] = None,
    variant: Annotated[str, typer.Option(help="paper, or authors: PC-LC as in the authors' code.")] = "paper",
    examples: Annotated[int | None, typer.Option(help="A trial: only the first N test images.")] = None,
    epochs: Annotated[int | None, typer.Option(help="A trial: at most N epochs in each phase.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results; several commands may share it. Default: results/reproduce, with --smoke "
            "runs/reproduce-smoke, which keeps meaningless figures away from results.",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="local, or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="With --engine ray: address of the cluster.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Models at a time. Default: 1 on a GPU (with Ray, on each GPU), one per core on a CPU."
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Threads of each job on a CPU; the last bits of results depend on them.")
    ] = 1,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Everything in miniature on digits, in seconds; the figures mean nothing.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show cells, costs and what is finished; run nothing.")] = False,
    write_docs: Annotated[
        bool,
        typer.Option("--write-docs", help="Write the pages of the documentation from the results; run nothing."),
    ] = False,
    docs: Annotated[
        Path | None, typer.Option(help="With --write-docs: folder of the documentation. Default: docs.")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(
            min=0, help="Start no cell that would end after so many hours; the same command continues another time."
        ),
    ] = None,
    weights: Annotated[
        bool, typer.Option("--weights/--no-weights", help="Keep the weights when the grid is done.")
    ] = True,
    root: Annotated[Path | None, typer.Option(help="Folder with the data sets.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...")] = None,
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32, bf16.")] = "auto",
    compiled: Annotated[
        bool | None,
        typer.Option("--compile/--no-compile", help="torch.compile; by default for long trainings on CUDA only."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train what is missing, reuse what is there, attack, and print the table as the paper has it.

    Each figure stands beside the published one with a verdict. Below come rows that the paper does not have: standard
    AutoAttack, and the worst case of everything run. Kill it at any moment: the same command continues where it was.
    Several commands, also on several hosts, may share a folder. Work goes seed by seed, so that a grid that is cut off
    has complete seeds, in which losses can be compared. With --hours only cells are started that end in time, judged by
    what finished cells took on such a device, or by an estimate.

    Examples:

    - `pclc reproduce table1 --datasets mnist --seeds 5`

    - `pclc reproduce table1 table3 masking --datasets cifar10 --no-weights`, each model and attack once

    - `pclc reproduce all --plan`

    - `pclc reproduce table1 --hours 3.5`, in a job of four hours

    - `pclc reproduce table1 --datasets mnist --seeds 1 --examples 100 --epochs 1`, a trial of the whole path

    - `pclc reproduce all --write-docs`, the pages on reproduction and on adversarial training
    """
    started = time.monotonic()
    import pclc
    from pclc.cli import tables
    from pclc.experiments.experiment import experiment_names, load_experiment
    from pclc.experiments.runner import GridSettings
    from pclc.experiments.smoke import smoke as smoke_run
    from pclc.experiments.values import Selection

    execution = pclc.Execution(device=device, precision=precision, compile=compiled)  # type: ignore[arg-type]
    on_cpu = execution.torch_device.type == "cpu"
    asked = (each for name in names for each in (experiment_names() if name == "all" else [name]))
    chosen = [load_experiment(name) for name in dict.fromkeys(asked)]
    for name, count in Counter(each.name for each in chosen).items():
        if count > 1:
            raise ValueError(f"Expected files with names of their own, but got {count} experiments named {name!r}.")
    selection = Selection(
        tuple(datasets) if datasets else None, tuple(losses) if losses else None, seeds, variant, examples, epochs
    )
    is_part = selection != Selection(variant=variant)
    if smoke:
        if is_part:
            raise ValueError("Expected --smoke without data sets, losses, seeds, examples and epochs: it has its own.")
        chosen = [smoke_run(each) for each in chosen]
        selection = Selection(variant=variant, examples=10, epochs=1)
    store = out or Path("runs/reproduce-smoke" if smoke else "results/reproduce")
    if write_docs:
        if is_part or plan or variant != "paper":
            raise ValueError("Expected --write-docs without a selection and without --plan: pages show all there is.")
        if smoke and docs is None:
            raise ValueError("Expected --smoke --write-docs with --docs FOLDER, since its figures mean nothing.")
        tables.write_docs(names, store, selection, docs or Path("docs"), smoke)
        return
    tables.check_selection(chosen, selection)
    settings = GridSettings(
        store=store,
        execution=execution,
        root=root,
        engine=engine,
        jobs=jobs or (max(1, (os.cpu_count() or 1) // threads) if on_cpu and engine == "local" else 1),
        address=address,
        threads=threads,
        weights=weights,
        progress=True,
        until=None if hours is None else started + 3600 * hours,
    )
    if plan:
        from pclc.cli.plan import show_plan

        show_plan(chosen, selection, settings, as_json)
        return
    with interruptible(lambda: f"finished cells are in {store}, and the same command continues from there."):
        failures = tables.run(chosen, selection, settings)
    shown = [tables.finish(each, selection, settings, as_json) for each in chosen]
    if as_json:
        typer.echo(json.dumps({"experiments": shown, "failures": failures}, indent=1))
    if hours is not None:
        tables.say_what_is_left(chosen, selection, settings, failures)
    for text, count in Counter(failures.values()).items():
        typer.echo(f"pclc: {count} cell{'s' if count > 1 else ''} failed: {text}", err=True)
    if failures:
        raise typer.Exit(1)
