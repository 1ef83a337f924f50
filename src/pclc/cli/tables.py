"""What ``pclc reproduce`` does once its options are read: the grid, its tables and figures, and the pages."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from pclc.cli.output import print_table
from pclc.experiments.block import Block
from pclc.experiments.costs import Cost, known_here, plan_grid
from pclc.experiments.drawings import draw_figures
from pclc.experiments.experiment import Experiment, check_choice, experiment_names, load_experiment
from pclc.experiments.pages import write_adversarial, write_reproduction
from pclc.experiments.pages_text import warnings_in
from pclc.experiments.runner import GridSettings, run_grid
from pclc.experiments.smoke import smoke as smoke_run
from pclc.experiments.store import Store
from pclc.experiments.table import Table, make_table, setting_text
from pclc.experiments.values import Selection, choose, possible_cells
from pclc.files import write_atomically

_COLUMNS_A_TABLE = 3


def check_selection(chosen: Sequence[Experiment], selection: Selection) -> None:
    """Refuse data sets and columns that none of the experiments has; each takes those that it has."""
    where = ", ".join(each.name for each in chosen)
    check_choice(
        "datasets", selection.datasets, dict.fromkeys(name for each in chosen for name in each.datasets), where
    )
    check_choice("losses", selection.columns, dict.fromkeys(name for each in chosen for name in each.arms), where)


def write_docs(asked: Sequence[str], out: Path, selection: Selection, docs: Path, smoke: bool) -> None:
    """One page for the study of adversarial training, one for all experiments: each with all that the store has."""
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


def run(chosen: Sequence[Experiment], selection: Selection, settings: GridSettings) -> dict[str, str]:
    """One grid for all: first what settings are chosen from, then everything else."""
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


def finish(each: Experiment, selection: Selection, settings: GridSettings, as_json: bool) -> dict[str, Any]:
    """Print an experiment's table, and write it and its figures beside the results."""
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


def _file_name(name: str, selection: Selection) -> str:
    """One file for each selection of images, epochs and variant, so that a trial never takes the place of the real."""
    parts = [name] if selection.variant == "paper" else [name, selection.variant]
    parts += [f"{limit}{getattr(selection, limit)}" for limit in ("examples", "epochs") if getattr(selection, limit)]
    return "-".join(parts)


def _print(table: Table) -> None:
    if not table.blocks:
        return
    typer.echo(f"\n{table.title}")
    for block in table.blocks:
        _print_block(block)
    if table.tuning:
        print_table([_flat(row) for row in table.tuning], title="Settings, chosen on held-out images:")
    if table.claims:
        trial = ", in this trial" if table.selection.limits else ""
        typer.echo(f"The paper's claims in words, by our means over seeds{trial}:")
    for judged in table.claims:
        typer.echo(judged.text())
        for exception in judged.ours.exceptions:
            typer.echo(f"    exception: {exception}")
    for text in (*table.conditions, *warnings_in(table.notes)):
        typer.echo(text)


def _print_block(block: Block) -> None:
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


def say_what_is_left(
    chosen: Sequence[Experiment], selection: Selection, settings: GridSettings, failures: Collection[str]
) -> None:
    """How many cells were not begun, and what they take."""
    store = Store(settings.store)
    cells = {c.hash: c for each in chosen for c in possible_cells(store, each, selection) if c.hash not in failures}
    planned = plan_grid(store, list(cells.values()), known_here(store, settings.execution, settings.threads))
    left = [plan.cost for plan in planned if not plan.finished]
    if left:
        typer.echo(
            f"pclc: {len(left)} of {len(planned)} cells are left, {sum(left, Cost())} one after the other; the "
            f"shortest takes {min(left, key=lambda cost: cost.seconds)}. The same command continues with them.",
            err=True,
        )


def _flat(row: Mapping[str, Any]) -> dict[str, str]:
    shown = {name: "not run" if row[name] is None else f"{row[name]:.2f}" for name in ("clean %", "robust %")}
    names = {"column": row["column"], "setting": setting_text(row["setting"])}
    return {**names, **shown, "chosen": "chosen" if row["chosen"] else ""}
