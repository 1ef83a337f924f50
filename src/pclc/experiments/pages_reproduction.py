"""The part of the page on reproduction that is made from results: every table, what it says, what is not run."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from pclc.experiments.block import Block, Contrast
from pclc.experiments.claims import JudgedClaim
from pclc.experiments.drawings import draw_figures
from pclc.experiments.pages_text import bullets, listed, markdown_table, shown, warnings_in
from pclc.experiments.store import Store
from pclc.experiments.table import Table, make_table

_IMAGES = "images/reproduction"
_PUBLISHED_A_TABLE, _COLUMNS_A_TABLE = 2, 5  # columns of the paper with three cells each; of ours with one
_OURS = "ours (95 % interval of the mean)"
_FEW = 3  # exceptions to a claim that are named
_SHOWN = {
    "ranks": "Bars show in which class newly successful attacks land, for each eps; "
    "a line shows how many there are since the eps before",
    "embedding": "t-SNE of the last features; each class has a colour and a marker, successful attacks are plus signs",
    "gaps": "Bars show the mean probability gap of each model, clean and under attack",
    "histograms": "Histograms of the loss and of the margin over examples",
    "confusion": "True against predicted class, in percent of the true class",
}


def reproduction_section(store: Store, tables: Sequence[Table], docs: Path) -> str:
    """Every table with what belongs to it, those without a finished cell as not run; figures go below `docs`."""
    parts = []
    there: list[Table] = []
    stems: list[Path] = []
    for table in [table for table in tables if _ran(table)]:
        figures = _draw(store, table, docs / _IMAGES)
        stems += figures
        others = _variants(store, table)
        parts += [_experiment(table, figures), *(_experiment(other, []) for other in others)]
        there += [table, *others]
    _remove_others(docs / _IMAGES, stems)
    left = [table for table in tables if not _ran(table)]
    if left:
        names = bullets([f"`{_command(table)}`: {table.experiment.title}" for table in left])
        parts.append(f"### Not run at all\n\n{names}")
    if there:
        parts.append(f"### Conditions\n\n{bullets(_conditions(there))}")
    return "\n\n".join(parts)


def _conditions(tables: Sequence[Table]) -> list[str]:
    """Under which all figures came about, each with the experiments, or the columns of these, that it is of."""
    found: dict[str, list[str]] = {}
    for table in tables:
        for text, columns in table.runs.items():
            name = table.title.partition(":")[0]
            found.setdefault(text, []).append(f"{name} ({columns})" if columns else name)
    return [f"{text}: {'; '.join(names)}." for text, names in found.items()]


def _command(table: Table, datasets: Sequence[str] = ()) -> str:
    variant = "" if table.selection.variant == "paper" else f" --variant {table.selection.variant}"
    name, smoke = table.experiment.name.removesuffix("-smoke"), " --smoke" if table.selection.limits else ""
    return f"pclc reproduce {name}{smoke}{variant}" + "".join(f" --datasets {each}" for each in datasets)


def _ran(table: Table) -> list[Block]:
    """The blocks with a finished cell."""
    return [block for block in table.blocks if block.has_run]


def _variants(store: Store, table: Table) -> list[Table]:
    """The columns that another form of the loss changes, where something of that was run."""
    cells = {cell.hash for cell in table.selection.cells(table.experiment)}
    other = replace(table.selection, variant="authors")
    changed = [cell for cell in other.cells(table.experiment) if cell.hash not in cells]
    if not any(store.load(cell) for cell in changed):
        return []
    columns = tuple(dict.fromkeys(cell.column for cell in changed))
    return [make_table(store, table.experiment, replace(other, columns=columns), {})]


def _experiment(table: Table, figures: Sequence[Path]) -> str:
    name, selection = table.experiment.name, table.selection
    parts = [f"### {table.title}"]
    for block in _ran(table):
        parts += [f"#### {block.dataset}, {block.model}", *_block(block)]
    parts += [_figure(stem, name) for stem in figures]
    if table.claims and selection.variant == "paper":
        parts += ["#### The paper's claims in words", _claims(table.claims)]
    ran = list(dict.fromkeys(block.dataset for block in _ran(table)))
    left = [dataset for dataset in table.experiment.datasets if dataset not in ran]
    rest = [f"Data sets not run: {listed(left)} (`{_command(table, left)}`)."] if left else []
    if more := [*warnings_in(table.notes), *rest]:
        parts.append(bullets(more))
    return "\n\n".join(parts)


def _block(block: Block) -> list[str]:
    """Published beside ours, what the paper does not have, seeds, and differences."""
    published = [row for row in block.rows if any(block.entry(row, column).published for column in block.columns)]
    # Shares by rank are a figure, with its numbers beside it.
    ours = [row for row in block.rows if row not in published and " rank " not in row and not _is_repeated(block, row)]
    parts = [
        markdown_table([_beside(block, row, columns) for row in published])
        for columns in _split(block.columns, _PUBLISHED_A_TABLE)
        if published
    ]
    if published and ours:
        parts.append("What the paper does not have:")
    for columns in _split(block.columns, _COLUMNS_A_TABLE) if ours else []:
        rows = [{"row": _name(block, row), **{n: block.entry(row, n).text() for n in columns}} for row in ours]
        if any(block.audits.values()):
            rows.append({"row": "audit", **{name: block.audited(name) for name in columns}})
        parts.append(markdown_table(rows))
    parts.append(bullets([block.about(column) for column in block.columns]))
    parts += _nearest(block)
    if block.remarks:
        parts.append("\n".join(remark.replace("*", "\\*") for remark in block.remarks))
    for pair in dict.fromkeys((contrast.column, contrast.baseline) for contrast in block.contrasts):
        found = [c for c in block.contrasts if (c.column, c.baseline) == pair and c.differences]
        # Of worst cases the rows of AutoAttack say as much.
        chosen = [c for c in found if " rank " not in c.row and not c.row.startswith("worst case")]
        if chosen:
            parts.append(f"{pair[0]} minus {pair[1]}, at equal seeds:")
            printed = any(contrast.published is not None for contrast in chosen)
            parts.append(markdown_table([_contrast(contrast, printed) for contrast in chosen]))
    return parts


def _beside(block: Block, row: str, columns: Sequence[str]) -> dict[str, str]:
    cells = {"row": row}
    for column in columns:
        printed, ours, verdict = block.entry(row, column).shown()
        printed = printed.replace("*", "\\*")
        cells |= {f"{column}: published": printed, f"{column}: ours": ours, f"{column}: verdict": verdict}
    return cells


def _is_repeated(block: Block, row: str) -> bool:
    """Whether it is a worst case that is AutoAttack's in every column, as far as can be seen."""
    twin = row.replace("worst case", "autoattack")
    return (
        twin != row
        and twin in block.rows
        and all(block.entry(row, column).text() == block.entry(twin, column).text() for column in block.columns)
    )


def _name(block: Block, row: str) -> str:
    """Of a row, with that of the worst case that it is as well."""
    worst = row.replace("autoattack", "worst case")
    return f"{row}, {worst}" if worst != row and worst in block.rows and _is_repeated(block, worst) else row


def _contrast(contrast: Contrast, printed: bool) -> dict[str, str]:
    published, ours, verdict = contrast.shown()
    figures = {"published": published, _OURS: ours, "verdict": verdict} if printed else {_OURS: ours}
    return {"row": contrast.row, **figures}


def _nearest(block: Block) -> list[str]:
    """Which of several columns that stand for one of the paper comes closest to it, over all rows."""
    rivals: dict[str, dict[str, float]] = {}
    for column in block.columns:
        published = {e.published.column for e in block.entries if e.column == column and e.published}
        distance = block.distance(column)
        if len(published) == 1 and distance is not None:
            rivals.setdefault(published.pop(), {})[column] = distance
    lines = []
    for name, found in rivals.items():
        ranked = sorted((distance, column) for column, distance in found.items())
        digits = block.digits(ranked[0][1])
        point, unit = (1, " in points") if digits == 1 else (0.01, "")
        # Within a point of the first, which another draw of seeds may put in front.
        near = [(distance, column) for distance, column in ranked if distance < ranked[0][0] + point]
        distances = ", ".join(f"`{column}` {distance:.{digits}f}" for distance, column in near)
        if len(found) > 1:
            lines.append(
                f"Closest to the published `{name}`, by mean distance{unit}: {distances}; {len(found)} were tried."
            )
    return lines


def _figure(stem: Path, name: str) -> str:
    dataset, kind = stem.name.removeprefix(f"{name}-").rsplit("-", 1)
    image, numbers = (f"{_IMAGES}/{stem.name}{suffix}" for suffix in (".svg", ".csv"))
    return f"![{name}, {dataset}, {kind}]({image})\n\n*{_SHOWN[kind]}; {dataset}.* [The numbers]({numbers})."


def _claims(claims: Sequence[JudgedClaim]) -> str:
    lines = []
    for judged in claims:
        exceptions = judged.ours.exceptions
        more = f"; and {len(exceptions) - _FEW} more" if len(exceptions) > _FEW else ""
        names = shown("; ".join(exceptions[:_FEW])) + more
        reading = f" {judged.claim.reading}" if judged.claim.reading else ""
        outcome = judged.text().removeprefix(f"{judged.claim.name}: ")
        lines.append(
            f"**{judged.claim.name}** ({judged.claim.source}). {judged.claim.text}{reading} Verdict: *{outcome}*."
            + (f" Exceptions: {names}." if exceptions else "")
        )
    return bullets(lines)


def _draw(store: Store, table: Table, folder: Path) -> list[Path]:
    """The figures of an experiment, as SVG and with their numbers."""
    stems = []
    with TemporaryDirectory() as temporary:
        cells = table.selection.cells(table.experiment)
        for stem in draw_figures(store, table.experiment.name, cells, Path(temporary)):
            folder.mkdir(parents=True, exist_ok=True)
            for suffix in (".svg", ".csv"):
                shutil.copyfile(f"{stem}{suffix}", folder / f"{stem.name}{suffix}")
            stems.append(folder / stem.name)
    return stems


def _remove_others(folder: Path, stems: Sequence[Path]) -> None:
    """Figures of results that are gone."""
    names = {stem.name for stem in stems}
    for path in folder.glob("*.*"):
        if path.suffix in (".svg", ".csv") and path.name.removesuffix(path.suffix) not in names:
            path.unlink()


def _split(columns: Sequence[str], size: int) -> list[Sequence[str]]:
    return [columns[start : start + size] for start in range(0, len(columns), size)]
