"""``pclc reproduce``: the tables and figures of the paper, beside the published figures."""

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pclc.cli.output import interruptible, print_table

if TYPE_CHECKING:
    from pclc.experiments.experiment import Experiment
    from pclc.experiments.runner import GridSettings
    from pclc.experiments.table import Block, Table
    from pclc.experiments.values import Selection

_COLUMNS_A_TABLE = 3


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
    examples: Annotated[int | None, typer.Option(help="A trial: only the first so many test images.")] = None,
    epochs: Annotated[int | None, typer.Option(help="A trial: at most so many epochs in each phase.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the results, which may be shared. Default: results/reproduce, and of --smoke "
            "runs/reproduce-smoke, so that nothing without a meaning stands beside results.",
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="local, or ray.")] = "local",
    address: Annotated[str | None, typer.Option(help="With --engine ray: of the cluster.")] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            min=1, help="Models at a time on this GPU, by default 1 (with ray: on each); on a CPU, one a core."
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option(min=1, help="Of each job on a CPU; results depend on it in the last bits.")
    ] = 1,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="The whole path on digits in seconds; the figures mean nothing.")
    ] = False,
    plan: Annotated[bool, typer.Option("--plan", help="Show cells, costs and what is there; run nothing.")] = False,
    write_docs: Annotated[
        bool,
        typer.Option("--write-docs", help="Write the pages of the documentation from the results; run nothing."),
    ] = False,
    docs: Annotated[
        Path | None, typer.Option(help="With --write-docs: folder of the documentation. Default: docs.")
    ] = None,
    hours: Annotated[
        float | None,
        typer.Option(min=0, help="Begin no cell that would end after so many; the same command goes on another time."),
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

    Each figure stands beside the published one with a verdict, and below come the rows that the paper does not have:
    standard AutoAttack, and the worst case of everything run. Killed at any moment, the same command goes on where it
    was; several of them, also on several hosts, may share a folder. It goes seed by seed, so that a grid that is cut
    off has whole seeds, in which losses can be compared. Where time is limited, --hours begins only what ends in it,
    by what finished cells took on such a device, or by an estimate where none did.

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
    from pclc.experiments.experiment import experiment_names, load_experiment
    from pclc.experiments.runner import GridSettings
    from pclc.experiments.smoke import smoke as smoke_run
    from pclc.experiments.values import Selection

    execution = pclc.Execution(device=device, precision=precision, compile=compiled)  # type: ignore[arg-type]
    on_cpu = execution.torch_device.type == "cpu"
    chosen = [load_experiment(name) for name in dict.fromkeys(experiment_names() if "all" in names else names)]
    for name, count in Counter(each.name for each in chosen).items():
        if count > 1:
            raise ValueError(f"Expected files with names of their own, but got {count} experiments named {name!r}.")
    selection = Selection(
        tuple(datasets) if datasets else None, tuple(losses) if losses else None, seeds, variant, examples, epochs
    )
    if smoke:
        if datasets or losses or seeds or examples or epochs:
            raise ValueError("Expected --smoke without data sets, losses, seeds, examples and epochs: it has its own.")
        chosen = [smoke_run(each) for each in chosen]
        selection = Selection(variant=variant, examples=10, epochs=1)
    store = out or Path("runs/reproduce-smoke" if smoke else "results/reproduce")
    if write_docs:
        if datasets or losses or seeds or examples or epochs or plan or variant != "paper":
            raise ValueError("Expected --write-docs without a selection and without --plan: pages show all there is.")
        if smoke and docs is None:
            raise ValueError("Expected --write-docs of --smoke with --docs FOLDER: its figures mean nothing.")
        _write_docs(names, store, selection, docs or Path("docs"), smoke)
        return
    _check_selection(chosen, selection)
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
    with interruptible(lambda: f"what is finished is in {store}, and the same command goes on there."):
        failures = _run(chosen, selection, settings)
    shown = [_finish(each, selection, settings, as_json) for each in chosen]
    if as_json:
        typer.echo(json.dumps({"experiments": shown, "failures": failures}, indent=1))
    if hours is not None:
        _say_what_is_left(chosen, selection, settings, failures)
    for text, count in Counter(failures.values()).items():
        typer.echo(f"pclc: {count} cell{'s' if count > 1 else ''} failed: {text}", err=True)
    if failures:
        raise typer.Exit(1)


def _check_selection(chosen: Sequence["Experiment"], selection: "Selection") -> None:
    """Refuse data sets and columns that none of the experiments has; each takes those that it has."""
    for option, asked, known in (
        ("datasets", selection.datasets, [name for each in chosen for group in each.groups for name in group.datasets]),
        ("losses", selection.columns, [arm.column for each in chosen for group in each.groups for arm in group.arms]),
    ):
        for name in asked or ():
            if name not in known:
                where = ", ".join(each.name for each in chosen)
                listed = ", ".join(dict.fromkeys(known))
                raise ValueError(f"Expected `{option}` to be among those of {where} ({listed}), but got {name!r}.")


def _write_docs(asked: Sequence[str], out: Path, selection: "Selection", docs: Path, smoke: bool) -> None:
    """One page for the study of adversarial training, one for all experiments: each with all that the store has."""
    from pclc.experiments.experiment import experiment_names, load_experiment
    from pclc.experiments.pages import write_adversarial, write_reproduction
    from pclc.experiments.smoke import smoke as smoke_run
    from pclc.experiments.store import Store

    for name in asked:
        if name not in ("all", *experiment_names()):
            raise ValueError(f"Expected --write-docs with an experiment of the package, or all, but got {name!r}.")
    # The paper's tables first.
    names = sorted(experiment_names(), key=lambda each: (not each.startswith("table"), each))
    experiments = {each: load_experiment(each) for each in names}
    if smoke:
        experiments = {each: smoke_run(experiment) for each, experiment in experiments.items()}
    written = []
    if {"all", "adversarial"} & set(asked):
        written += write_adversarial(Store(out), experiments["adversarial"], selection, docs)
        if not written:
            typer.echo(f"{docs}/adversarial-training.md is not written: no cell of `adversarial` is finished in {out}.")
    # Always, since the README and the costs speak of the study too.
    written += write_reproduction(Store(out), list(experiments.values()), selection, docs)
    for page in written:
        typer.echo(str(page))


def _run(chosen: Sequence["Experiment"], selection: "Selection", settings: "GridSettings") -> dict[str, str]:
    """One grid for all: first what settings are chosen from, then everything else."""
    from dataclasses import replace

    from pclc.experiments.runner import run_grid
    from pclc.experiments.store import Store
    from pclc.experiments.values import choose

    tuning = {each.name: selection.tuning_cells(each) for each in chosen}
    first = [cell for cells in tuning.values() for cell in cells]
    # The model of a setting that is chosen is needed again, also where that is another time.
    failures = run_grid(first, replace(settings, weights=True)) if first else {}
    store, cells = Store(settings.store), []
    for each in chosen:
        choices = choose(store, tuning[each.name])
        cells += selection.cells(each, choices)
        cells += [cell for cell in tuning[each.name] if cell.column in choices]
    failures |= run_grid(cells, settings)
    return failures


def _finish(each: "Experiment", selection: "Selection", settings: "GridSettings", as_json: bool) -> dict[str, Any]:
    """Print an experiment's table, and write it and its figures beside the results."""
    from pclc.experiments.drawings import draw_figures
    from pclc.experiments.store import Store
    from pclc.experiments.table import make_table
    from pclc.experiments.values import choose
    from pclc.files import write_atomically

    store = Store(settings.store)
    choices = choose(store, selection.tuning_cells(each))
    table = make_table(store, each, selection, choices)
    name = _file_name(each.name, selection)
    try:
        stems = draw_figures(store, name, selection.cells(each, choices), settings.store / "figures")
    except (ModuleNotFoundError, ValueError) as error:  # also more classes than can be told apart: the table stays
        stems = []
        typer.echo(f"pclc: the figures of {each.name} are not drawn: {error}", err=True)
    content = {**table.as_dict(), "figures": [stem.relative_to(settings.store).as_posix() for stem in stems]}
    folder = settings.store / "tables"
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / f"{name}.json", (json.dumps(content, indent=1) + "\n").encode())
    if not as_json:
        _print(table)
        for stem in stems:
            typer.echo(f"{stem}.svg, .png, .csv")
    return content


def _file_name(name: str, selection: "Selection") -> str:
    """One file for each selection of images, epochs and variant, so that a trial never takes the place of the real."""
    parts = [name] if selection.variant == "paper" else [name, selection.variant]
    parts += [f"{limit}{getattr(selection, limit)}" for limit in ("examples", "epochs") if getattr(selection, limit)]
    return "-".join(parts)


def _print(table: "Table") -> None:
    if not table.blocks:
        return
    typer.echo(f"\n{table.title}")
    for block in table.blocks:
        _print_block(block)
    if table.tuning:
        print_table([_flat(row) for row in table.tuning], title="Settings, chosen on held-out images:")
    if table.claims:
        trial = ", in this trial" if table.selection.limits else ""
        typer.echo(f"What the paper says in words, by our means over seeds{trial}:")
    for judged in table.claims:
        typer.echo(judged.text())
        for exception in judged.ours.exceptions:
            typer.echo(f"    exception: {exception}")
    for text in (*table.conditions, *table.notes):
        typer.echo(text)


def _print_block(block: "Block") -> None:
    entries = {(entry.row, entry.column): entry for entry in block.entries}
    published = any(entry.published is not None for entry in block.entries)
    heading = "published | ours, mean ± standard deviation over seeds | verdict" if published else "mean ± std"
    for start in range(0, len(block.columns), _COLUMNS_A_TABLE):
        columns = block.columns[start : start + _COLUMNS_A_TABLE]
        rows = [{"row": row, **{name: entries[row, name].text() for name in columns}} for row in block.rows]
        if any(block.audits.values()):
            rows.append({"row": "audit", **{name: block.audited(name) for name in columns}})
        print_table(rows, title=f"{block.dataset}, {block.model} ({heading})")
    for column in block.columns:
        typer.echo(block.about(column))
    for remark in block.remarks:
        typer.echo(remark)
    contrasts = [contrast for contrast in block.contrasts if contrast.differences or contrast.published is not None]
    if contrasts:
        print_table(
            [{"row": c.row, "contrast": f"{c.column} - {c.baseline}", "difference": c.text()} for c in contrasts],
            title=f"{block.dataset}, {block.model}: differences at equal seeds (with a 95 % interval of the mean)",
            lift=True,
        )


def _say_what_is_left(
    chosen: Sequence["Experiment"], selection: "Selection", settings: "GridSettings", failures: Collection[str]
) -> None:
    """How many cells were not begun, and what they take."""
    from pclc.experiments.costs import Cost, known_here, plan_grid
    from pclc.experiments.store import Store
    from pclc.experiments.values import possible_cells

    store = Store(settings.store)
    cells = {c.hash: c for each in chosen for c in possible_cells(store, each, selection) if c.hash not in failures}
    planned = plan_grid(store, list(cells.values()), known_here(store, settings.execution, settings.threads))
    left = [plan.cost for plan in planned if not plan.finished]
    if left:
        typer.echo(
            f"pclc: {len(left)} of {len(planned)} cells are left for the same command, {sum(left, Cost())} one after "
            f"the other; the shortest takes {min(left, key=lambda cost: cost.seconds)}.",
            err=True,
        )


def _flat(row: Mapping[str, Any]) -> dict[str, Any]:
    from pclc.experiments.table import setting_text

    text = setting_text(row["setting"])
    shown = {name: "not run" if row[name] is None else f"{row[name]:.2f}" for name in ("clean %", "robust %")}
    return {"column": row["column"], "setting": text, **shown, "chosen": "chosen" if row["chosen"] else ""}
