"""The page on PC inside adversarial training, made from the results of the study: no figure on it is typed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from pclc.analysis.figures import plot_curves, plot_tradeoff
from pclc.attacks.attack import number_text
from pclc.experiments.block import Block, spread
from pclc.experiments.experiment import Cell, Experiment
from pclc.experiments.groups import Arm
from pclc.experiments.pages_findings import findings, in_short, robust_row, values
from pclc.experiments.pages_text import bullets, counted, listed, markdown_table, quoted, shown, warnings_in
from pclc.experiments.store import Store
from pclc.experiments.table import Table, make_table, setting_text
from pclc.experiments.values import Selection, choose
from pclc.training.selection import selection_attack
from pclc.training.watch import has_collapsed

PAGE = "adversarial-training.md"
_IMAGES = "images/adversarial-training"
# What is said of a training: names of its configuration and of its recipe.
_TRAINING = "optimizer", "lr", "schedule", "weight_decay", "batch_size", "augmentation", "ema", "validation"
_CRAFTING = "norm", "eps", "alpha", "steps", "objective"
_Curves = dict[str, dict[int, dict[int, float]]]  # by arm, seed and epoch

_INTRODUCTION = """# PC inside adversarial training

PC-LC alone does not make a model robust ([Reproduction](reproduction.md)). Inside adversarial training the PC term does
something else: added to cross-entropy on the adversarial example, it is a bounded loss that pulls on examples near the
boundary and lets go of hopeless ones. This page shows what that gives, beside what simpler terms give.
"""

_USE = """## How to use it

The preset trains with PGD-7 at 8/255 and, on CIFAR-10, with the weight of PC and the learning rate that the study
chose; every number can be changed ([Training](training.md)):

```sh
pclc train cifar10 --model vgg13 --adversarial pc --validation 0.04 --out runs/pc
pclc audit runs/pc --eps 8/255
```

`--validation` holds images out, on which the best epoch is chosen, as in the study; without it the last epoch is kept.

In a loop of your own the loss is a plain function of clean logits (None where they are not needed), adversarial logits
and labels:

```python
import torch

import pclc
from pclc.training import pc_adversarial_loss

train = pclc.load_dataset("digits", split="train")
model = pclc.create_model("lenet8")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
attack = pclc.attacks.PGD(eps=0.1, alpha=0.025, steps=7, stop="never")
for step, rows in enumerate(torch.randperm(len(train)).split(128)):
    x, y = train.images[rows].float() / 255, train.labels[rows]
    x_adv = attack(model, x, y, seed=step)
    loss = pc_adversarial_loss(None, model(x_adv), y, beta=10.0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
```

## The study

All arms of a panel share schedule, augmentation, weight averaging and the number of crafting steps: seven, or one from
a random point at the cheap end (`fast`, `pc-fast`). Arms whose loss also needs the clean images pass them through the
network too, and so take longer. Each arm had the same number of settings; one of them, and the best epoch of each
training, was chosen on held-out images, never on test images. Accuracies are in %, and times are those of the epochs
alone. Attacks and training settings are listed under [Conditions](#conditions).
"""


def adversarial_page(store: Store, experiment: Experiment, selection: Selection, docs: Path) -> str | None:
    """The whole page, its pictures written below `docs`; None where no cell of the study is finished."""
    choices = choose(store, selection.tuning_cells(experiment))
    table = make_table(store, experiment, selection, choices)
    blocks = [block for block in table.blocks if block.has_run]
    if not blocks:
        return None
    cells = selection.cells(experiment, choices)
    tried = selection.tuning_cells(experiment)
    done = [cell for cell in cells if store.load(cell)]
    seconds = _training_seconds(store, done)
    parts = [_INTRODUCTION.strip(), in_short(blocks[0]), _USE.strip()]
    if selection.limits:
        parts.append(f"**{table.title}**")
    parts += [*_reduced(experiment, selection, done), "### At a glance", _picture(blocks, docs)]
    parts += ["### What it says", *findings(blocks, seconds)]
    for block in blocks:
        parts += [f"### {block.dataset}, {block.model}", *_figures(block, seconds)]
    parts += [*_audits(store, cells), "### Settings", _settings(table, tried), *_overfitting(store, cells, docs)]
    parts += [*_collapses(store, experiment, [*cells, *tried])]
    parts += ["### Not run", bullets([*_not_run(table, choices), *_not_planned(experiment), *_no_curves(store, done)])]
    notes = [*(f"{text}." for text in table.conditions), *warnings_in(table.notes)]
    parts += ["### Conditions", bullets([*_trainings(done), *_attacks(done), *notes])]
    smoke = " --smoke" if selection.limits else ""
    parts.append(
        f"```sh\npclc reproduce adversarial{smoke}\npclc reproduce adversarial{smoke} --write-docs\n```\n\n"
        "The first command runs what is missing from the study; the second wrote this page."
    )
    return "\n\n".join(parts) + "\n"


def _training_seconds(store: Store, cells: Sequence[Cell]) -> dict[tuple[str, str], float]:
    """Of an average training, by network and length and by column."""
    found: dict[tuple[str, str], list[float]] = {}
    for cell in cells:
        result = store.load(cell)
        if result is not None:
            found.setdefault((_network(cell), cell.column), []).append(result["training"]["seconds"])
    return {place: mean(taken) for place, taken in found.items()}


def _reduced(experiment: Experiment, selection: Selection, done: Sequence[Cell]) -> list[str]:
    """That not all of the study was run, where that is so."""
    planned = len(selection.cells(experiment, dict.fromkeys(experiment.arms, 0)))
    if len(done) == planned:
        return []
    return [
        f"**{len(done)} of the {planned} models of the study are finished; the rest is listed under "
        "[Not run](#not-run).** Where device time is short, arms go before seeds, and seeds before test images."
    ]


def _picture(blocks: Sequence[Block], docs: Path) -> str:
    panels: dict[str, dict[str, dict[int, tuple[float, float]]]] = {}
    for block in blocks:
        for column in block.columns:
            clean, robust = values(block, "clean", column), values(block, robust_row(block), column)
            if robust:
                points = {seed: (clean[seed], robust[seed]) for seed in robust}
                panels.setdefault(f"{block.dataset}, {block.model}", {})[column] = points
    plot_tradeoff(panels, docs / _IMAGES / "tradeoff")
    caption = (
        "Clean against AutoAttack accuracy, a panel for each network and length of training: a small mark for each "
        "model, a large one for the mean of its arm; further right and further up is better."
    )
    return _image("tradeoff", caption)


def _image(name: str, caption: str) -> str:
    folder, what = f"{_IMAGES}/{name}", caption.partition(",")[0]
    return f"![{what}]({folder}.svg)\n\n*{caption}* [PNG]({folder}.png), [the numbers]({folder}.csv)."


def _figures(block: Block, seconds: Mapping[tuple[str, str], float]) -> list[str]:
    """The arms with their figures and times, and paired differences to the baselines."""
    rows = []
    for column in block.columns:
        figures = {row: block.entry(row, column).text() for row in block.rows if row != "worst case of all"}
        audit = {"audit": block.audited(column)} if any(block.audits.values()) else {}
        taken = seconds.get((block.model, column))
        time = {"training": "not run" if taken is None else f"{taken:.0f} s"}
        rows.append({"arm": column, "seeds": listed(sorted(block.seeds[column])), **figures, **time, **audit})
    parts = [markdown_table(rows)]
    if scattered := [f"`{column}`: {text}." for column in block.columns if (text := block.apart(column))]:
        parts.append(bullets(scattered))
    for baseline in dict.fromkeys(contrast.baseline for contrast in block.contrasts):
        found = [c for c in block.contrasts if c.baseline == baseline and c.differences]
        rows = [
            {"arm": column, **{c.row: c.text() for c in found if c.column == column and c.row in _paired(block)}}
            for column in dict.fromkeys(c.column for c in found)
        ]
        if rows:
            parts += [f"Minus `{baseline}`, at equal seeds, with 95 % intervals of the mean:", markdown_table(rows)]
    return parts


def _paired(block: Block) -> list[str]:
    return [row for row in block.rows if not row.startswith("worst case")]


def _audits(store: Store, cells: Sequence[Cell]) -> list[str]:
    """What was asked of the audits, and the reasons of those that do not end well."""
    asked = dict.fromkeys(cell.audit for cell in cells if cell.audit is not None)
    if not asked:
        return []
    results = [(cell, result) for cell in cells if (result := store.load(cell))]
    about = []
    for each in asked:
        seeds = [cell.training.config.seed for cell, _ in results if cell.audit == each]
        which = f" (seeds {listed(sorted(set(seeds)))})" if seeds else ""
        about.append(
            f"Audits (mode {each.mode}, eps {number_text(each.eps)}, "
            f"{f'the first {each.examples}' if each.examples else 'all'} test images) ask whether the accuracy that "
            f"plain PGD-40 leaves is real. {len(seeds)} of {counted(len(results), 'finished model')} were audited"
            f"{which}. A verdict is about its own model, and says nothing about other seeds of the same arm."
        )
    audited = [(cell, result["audit"]) for cell, result in results if cell.audit is not None]
    lines = [
        f"{_network(cell)}, `{cell.column}`, seed {cell.training.config.seed}: {found['verdict']}. "
        f"{shown(found['reason'])}"
        for cell, found in audited
        if found["verdict"] != "not refuted"
    ]
    if audited and not lines:
        lines = ["No claim was refuted, and all could be judged."]
    return ["### Audits", *about, *([bullets(lines)] if lines else [])]


def _settings(table: Table, tried: Sequence[Cell]) -> str:
    """Every setting of the arms of which one was tried, also the losing ones."""
    tuning = table.experiment.tuning
    assert tuning is not None
    arms = {row["column"] for row in table.tuning if row["clean %"] is not None}
    cells = [cell for cell in tried if cell.column in arms]
    places = dict.fromkeys(f"{_network(cell)}, seed {cell.training.config.seed}" for cell in cells)
    rates = [name for name, arm in table.experiment.arms.items() if name in arms and _tunes_only_rate(arm)]
    rows = [
        {
            "arm": row["column"],
            "setting": setting_text(row["setting"]),
            "clean": "not run" if row["clean %"] is None else f"{row['clean %']:.2f}",
            "robust": "not run" if row["robust %"] is None else f"{row['robust %']:.2f}",
            "held-out images": "-" if row["validation images"] is None else str(row["validation images"]),
            "chosen": "chosen" if row["chosen"] else "",
        }
        for row in table.tuning
        if row["column"] in arms
    ]
    about = (
        f"Chosen by accuracy under `{tuning.text}` on held-out images ({'; '.join(places)}), and used for all other "
        "seeds, networks and lengths; the tables include that seed. For "
        f"{quoted(rates)} the learning rate alone was tuned, for the others also a number in their loss."
    )
    return f"{about}\n\n{markdown_table(rows)}"


def _tunes_only_rate(arm: Arm) -> bool:
    return bool(arm.settings) and all(
        setting.keys() == {"train"} and {*setting["train"]} == {"lr"} for setting in arm.settings
    )


def _overfitting(store: Store, cells: Sequence[Cell], docs: Path) -> list[str]:
    """Robust accuracy on held-out images over epochs, where the trainings have it."""
    found: dict[str, _Curves] = {}
    attacks: dict[str, None] = {}
    for cell in cells:
        curve = _curve(store, cell)
        if curve and cell.training.config.adversarial is not None:
            found.setdefault(_title(cell), {}).setdefault(cell.column, {})[cell.training.config.seed] = curve
            attacks[f"`{selection_attack(cell.training.config.adversarial)}`"] = None
    if not found:
        return []
    panels = {title: {arm: seeds[min(seeds)] for arm, seeds in arms.items()} for title, arms in found.items()}
    plot_curves(panels, docs / _IMAGES / "validation")
    rows, falls = [], []
    for title, arms in found.items():
        for arm, seeds in arms.items():
            best = [max(curve, key=lambda epoch: curve[epoch]) for curve in seeds.values()]
            fall = [max(curve.values()) - curve[max(curve)] for curve in seeds.values()]
            falls.append((mean(fall), arm, title))
            rows.append(
                {
                    "network": title,
                    "arm": arm,
                    "best epoch": f"{mean(best):.0f}",
                    "at the best epoch": spread([max(curve.values()) for curve in seeds.values()]),
                    "at the last epoch": spread([curve[max(curve)] for curve in seeds.values()]),
                    "fall": spread(fall),
                }
            )
    largest, arm, title = max(falls)
    caption = "Robust accuracy on held-out images over epochs, a line for each arm, of the smallest seed that was run."
    return [
        "### Robust overfitting",
        f"From the best epoch to the last, robust accuracy on held-out images falls by at most {largest:.1f} points on "
        f"average over seeds (`{arm}`; {title}). The best of many epochs is partly luck, so small falls mean nothing. "
        "The weights of the best epoch are the ones attacked elsewhere on this page. Robust accuracy here is that of "
        f"the averaged weights under {' and '.join(attacks)}, on at most 1,000 of the held-out images.",
        _image("validation", caption),
        markdown_table(rows),
    ]


def _collapses(store: Store, experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    """Which trainings lost their robustness on the way, those of losing settings among them."""
    curves = {cell.training.hash: (cell, list(_curve(store, cell).values())) for cell in cells}
    known = [(cell, curve) for cell, curve in curves.values() if curve]
    if not known:
        return []
    lines = []
    for cell, curve in known:
        ends = [end for end in range(1, len(curve) + 1) if has_collapsed([value / 100 for value in curve[:end]])]
        if ends:
            chosen = (
                "" if cell.setting is None else f", {setting_text(experiment.arms[cell.column].settings[cell.setting])}"
            )
            place = f"{_title(cell)}, `{cell.column}`{chosen}, seed {cell.training.config.seed}"
            lines.append(f"{place}: from {max(curve[: ends[0]]):.1f} to {curve[ends[0] - 1]:.1f}")
    about = (
        "A training whose robust accuracy on held-out images falls below half of its best, and by more than 10 points, "
        f"has overfitted catastrophically. {len(lines)} of {counted(len(known), 'training')} did"
    )
    return ["### Catastrophic overfitting", f"{about}{':' if lines else '.'}", *([bullets(lines)] if lines else [])]


def _curve(store: Store, cell: Cell) -> dict[int, float]:
    """By epoch the robust accuracy of a finished cell's training on held-out images, where it was measured."""
    epochs = store.epochs(cell.training) if store.load(cell) else []
    values = {entry["epoch"]: entry.get("validation_robust_accuracy") for entry in epochs}
    return {epoch: 100 * value for epoch, value in values.items() if value is not None}


def _title(cell: Cell) -> str:
    return f"{cell.training.dataset}, {_network(cell)}"


def _network(cell: Cell) -> str:
    return f"{cell.training.model}, {cell.training.config.epochs} epochs"


def _trainings(cells: Sequence[Cell]) -> list[str]:
    """How the networks were trained; what differs between arms with all its values."""
    found: dict[str, dict[str, dict[str, None]]] = {}
    for cell in cells:
        config, recipe = cell.training.config, cell.training.config.adversarial
        texts = {name: str(getattr(config, name)) for name in _TRAINING}
        texts |= {name: _number(getattr(recipe, name)) for name in _CRAFTING} if recipe else {}
        for name, text in texts.items():
            found.setdefault(_title(cell), {}).setdefault(name, {})[text] = None
    return [
        f"{title}: " + ", ".join(f"{name} {' or '.join(texts)}" for name, texts in numbers.items()) + "."
        for title, numbers in found.items()
    ]


def _number(value: object) -> str:
    return number_text(value) if isinstance(value, float) else str(value)


def _attacks(cells: Sequence[Cell]) -> list[str]:
    """The rows' names, and what stands behind them."""
    texts = dict.fromkeys((attack.name, attack.text) for cell in cells for attack in cell.attacks)
    return [f"{name}: `{text}`." for name, text in texts]


def _not_run(table: Table, choices: Mapping[str, int]) -> list[str]:
    """Seeds and arms of the study that are missing."""
    lines = []
    for block in table.blocks:
        missing = {column: seeds for column, seeds in block.not_run.items() if seeds}
        texts = [f"`{column}` (seeds {listed(seeds)})" for column, seeds in missing.items()]
        if texts:
            lines.append(f"{block.dataset}, {block.model}: {', '.join(texts)}.")
    begun = {row["column"] for row in table.tuning if row["clean %"] is not None}
    arms = [name for name, arm in table.experiment.arms.items() if arm.settings]
    left, half = ([name for name in arms if name not in choices and (name in begun) == some] for some in (False, True))
    if left:
        lines.append(f"Arms not run at all: {quoted(left)}.")
    if half:
        lines.append(f"Arms without a chosen setting, since not all were tried: {quoted(half)}.")
    return lines or ["Every arm and seed of the study was run."]


def _not_planned(experiment: Experiment) -> list[str]:
    """Which of the first group's arms other groups that repeat some of them leave out by design."""
    first = [arm.column for arm in experiment.groups[0].arms]
    lines = []
    for group in experiment.groups[1:]:
        columns = {arm.column for arm in group.arms}
        left = [column for column in first if column not in columns]
        if left and len(left) < len(first):
            epochs = dict.fromkeys(str(arm.changes["epochs"]) for arm in group.arms)
            lines.append(f"Not planned with {group.model}, {' or '.join(epochs)} epochs: {quoted(left)}.")
    return lines


def _no_curves(store: Store, done: Sequence[Cell]) -> list[str]:
    """How many trainings' curves on held-out images are not kept."""
    without, of = sum(not _curve(store, cell) for cell in done), counted(len(done), "model")
    return [f"Held-out accuracy over epochs was not kept for {without} of {of}."] if without else []
