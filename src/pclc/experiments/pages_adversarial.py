"""The page on PC inside adversarial training, made from the results of the study: no figure on it is typed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from pclc.analysis.figures import plot_curves, plot_tradeoff
from pclc.attacks.attack import number_text
from pclc.evaluation.statistics import SeedComparison
from pclc.experiments.experiment import Cell, Experiment
from pclc.experiments.pages_text import (
    bullets,
    compare,
    counted,
    difference,
    listed,
    markdown_table,
    quoted,
    shown,
    warnings_in,
)
from pclc.experiments.store import Store
from pclc.experiments.table import Block, Table, make_table, setting_text, spread
from pclc.experiments.values import Selection, choose
from pclc.training import RunDirectory
from pclc.training.selection import selection_attack
from pclc.training.watch import has_collapsed

PAGE = "adversarial-training.md"
_IMAGES = "images/adversarial-training"
# The comparisons that the questions are about.
_PAIRS = [(arm, baseline) for baseline in ("ce", "trades") for arm in ("ce + pc", "clean share + pc", "trades + pc")]
_PAIRS += [("pc-fast", "fast")]
# What is said of a training: names of its configuration and of its recipe.
_TRAINING = "optimizer", "lr", "schedule", "weight_decay", "batch_size", "augmentation", "ema", "validation"
_CRAFTING = "norm", "eps", "alpha", "steps", "objective"
_Curves = dict[str, dict[int, dict[int, float]]]  # by arm, seed and epoch

_INTRODUCTION = """# PC inside adversarial training

PC-LC alone does not make a model robust ([Reproduction](reproduction.md)). Inside adversarial training the PC term does
something else: added to cross-entropy on the adversarial example, it is a bounded loss that pulls on examples near the
boundary and lets go of hopeless ones. This page shows what that gives, and beside it what simpler terms give.

## How to use it

The preset trains with PGD-7 at 8/255; every number of it can be changed ([Training](training.md)):

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

The arms of a panel have the same schedule, augmentation, averaging of weights and number of crafting steps: seven, or
at the cheap end (`fast`, `pc-fast`) one from a random point. Arms whose loss needs the clean images too pass them
beside the adversarial ones, and so take longer. Each had the same number of settings, of which one was chosen on
held-out images, as was the best epoch of each training; test images took no part in that. Accuracies are in %; the
attacks and the numbers of the trainings are under [Conditions](#conditions).
"""

_WHY = """On an adversarial example whose true class has less than the margin, .995, every false class violates it. PC
is then K / 2 times the mean absolute error plus a constant, and its structure over the false classes is silent. Two
arms look into that: `ce + mae` has the mean absolute error in place of PC, and `ce + pc, margin 0.5` a margin at which
the structure acts."""


def adversarial_page(store: Store, experiment: Experiment, selection: Selection, docs: Path) -> str | None:
    """The whole page, its pictures written below `docs`; None where no cell of the study is finished.

    Args:
        store: with the results.
        experiment: the study.
        selection: everything, or the part that a smoke run has.
        docs: folder of the documentation.
    """
    choices = choose(store, selection.tuning_cells(experiment))
    table = make_table(store, experiment, selection, choices)
    blocks = [block for block in table.blocks if any(block.seeds.values())]
    if not blocks:
        return None
    parts = [_INTRODUCTION.strip()]
    if selection.limits:
        parts.append(f"**{table.title}**")
    parts += ["### At a glance", _picture(blocks, docs), "### What it says", *_sentences(blocks)]
    for block in blocks:
        parts += [f"### {block.dataset}, {block.model}", *_figures(block)]
    cells = selection.cells(experiment, choices)
    tried = selection.tuning_cells(experiment)
    parts += [*_audits(store, cells), "### Settings", _settings(table), *_overfitting(store, cells, docs)]
    parts += [*_collapses(store, experiment, [*cells, *tried]), "### Not run", _not_run(table, choices)]
    notes = [*(f"{text}." for text in table.conditions), *warnings_in(table.notes)]
    done = [cell for cell in cells if store.load(cell)]
    parts += ["### Conditions", bullets([*_trainings(done), *_attacks(done), *notes])]
    smoke = " --smoke" if selection.limits else ""
    parts.append(
        f"```sh\npclc reproduce adversarial{smoke}\npclc reproduce adversarial{smoke} --write-docs\n```\n\n"
        "The second command made this page."
    )
    return "\n\n".join(parts) + "\n"


def _robust(block: Block) -> str:
    """The row of AutoAttack."""
    return next(row for row in block.rows if row.startswith("autoattack"))


def _values(block: Block, row: str, column: str) -> Mapping[int, float]:
    return block.entry(row, column).values if column in block.columns else {}


def _picture(blocks: Sequence[Block], docs: Path) -> str:
    panels: dict[str, dict[str, dict[int, tuple[float, float]]]] = {}
    for block in blocks:
        for column in block.columns:
            clean, robust = _values(block, "clean", column), _values(block, _robust(block), column)
            if robust:
                points = {seed: (clean[seed], robust[seed]) for seed in robust}
                panels.setdefault(f"{block.dataset}, {block.model}", {})[column] = points
    plot_tradeoff(panels, docs / _IMAGES / "tradeoff")
    alt = (
        "Clean against AutoAttack accuracy, a panel for each network and length of training: a small mark for each "
        "model, a large one for the mean of its arm; further right and further up is better."
    )
    return _image("tradeoff", alt)


def _image(name: str, alt: str) -> str:
    folder = f"{_IMAGES}/{name}"
    return f"![{alt}]({folder}.svg)\n\n*{alt}* [PNG]({folder}.png), [the numbers]({folder}.csv)."


def _sentences(blocks: Sequence[Block]) -> list[str]:
    """What the intervals over seeds say about the questions of the study."""
    parts = [
        "Differences of AutoAttack accuracy in points, at equal seeds, with 95 % intervals of the mean. An interval "
        "with 0 in it tells nothing apart. Each stands for itself: with many of them, one may be wrong by chance."
    ]
    for block in blocks:
        lines = [text for arm, baseline in _PAIRS if (text := _compared(block, arm, baseline)) is not None]
        if lines:
            parts += [f"**{block.dataset}, {block.model}**", bullets(lines)]
    helps = _what_helps(blocks[0])
    if helps:
        parts += [f"**All arms, {blocks[0].dataset}, {blocks[0].model}**", bullets(helps)]
    return [*parts, _WHY, _mae(blocks), *_structure(blocks)]


def _compared(block: Block, first: str, second: str) -> str | None:
    """One arm against another, in a sentence; None where they have no seed in common."""
    row = _robust(block)
    found = compare(_values(block, row, first), _values(block, row, second), block.step)
    if found is None:
        return None
    clean = compare(_values(block, "clean", first), _values(block, "clean", second), block.step)
    words = {1: "leaves more than", -1: "leaves less than", 0: "cannot be told from"}[_side(found)]
    if isinstance(found, float):
        words = "has only one seed in common, which decides nothing, with"
    return f"`{first}` {words} `{second}`: {difference(found)}{_seeds(found)}; clean accuracy {difference(clean)}."


def _seeds(found: SeedComparison | float) -> str:
    return "" if isinstance(found, float) else f", {counted(found.seeds, 'seed')}"


def _side(found: SeedComparison | float) -> int:
    """1 or -1 where the interval is above or below 0, otherwise 0."""
    if isinstance(found, float):
        return 0
    return 1 if found.interval.low > 0 else -1 if found.interval.high < 0 else 0


def _what_helps(block: Block) -> list[str]:
    """The arms by what they do to cross-entropy."""
    row = _robust(block)
    sides: dict[int, list[str]] = {1: [], -1: [], 0: []}
    few: list[str] = []
    for column in block.columns:
        found = compare(_values(block, row, column), _values(block, row, "ce"), block.step)
        if column != "ce":
            (sides[_side(found)] if isinstance(found, SeedComparison) else few).append(column)
    if not any(sides.values()):
        return []
    return [
        f"More than `ce` leave: {quoted(sides[1])}.",
        f"Less than `ce` leave: {quoted(sides[-1])}.",
        f"Not to be told from `ce`: {quoted(sides[0])}.",
        *([f"Fewer than two seeds in common with `ce`: {quoted(few)}."] if few else []),
    ]


def _mae(blocks: Sequence[Block]) -> str:
    """The plain sentence about the mean absolute error, whichever way it falls."""
    for block in blocks:
        row = _robust(block)
        found = compare(_values(block, row, "ce + mae"), _values(block, row, "ce + pc"), block.step)
        if found is None:
            continue
        numbers = f"`ce + mae` minus `ce + pc` is {difference(found)} points{_seeds(found)} ({block.model})"
        if isinstance(found, float):
            return f"**Whether the mean absolute error does as well as PC is open**: {numbers}."
        return {
            1: f"**The plain mean absolute error does better than PC**: {numbers}. The structure over the false "
            "classes does not help here.",
            -1: f"**PC does better than the plain mean absolute error**: {numbers}. That the term is bounded does not "
            "explain all of it.",
            0: f"**PC and the plain mean absolute error cannot be told apart**: {numbers}. Nothing here speaks for the "
            "structure over the false classes.",
        }[_side(found)]
    return "**Whether the mean absolute error does as well as PC is not known**: the two arms have no seed in common."


def _structure(blocks: Sequence[Block]) -> list[str]:
    """What a smaller margin gives."""
    texts = (_compared(block, "ce + pc, margin 0.5", "ce + pc") for block in blocks)
    return [f"With a smaller margin: {text}" for text in texts if text][:1]


def _figures(block: Block) -> list[str]:
    """The arms with their figures, and paired differences to the baselines."""
    rows = []
    for column in block.columns:
        figures = {row: block.entry(row, column).text() for row in block.rows if row != "worst case of all"}
        audit = {"audit": block.audited(column)} if any(block.audits.values()) else {}
        rows.append({"arm": column, "seeds": listed(sorted(block.seeds[column])), **figures, **audit})
    parts = [markdown_table(rows)]
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
    about = [
        f"Each model is audited (mode {each.mode}, eps {number_text(each.eps)}, "
        f"{f'the first {each.examples}' if each.examples else 'all'} test images): is what plain PGD-40 leaves true?"
        for each in asked
    ]
    lines = []
    for cell in cells:
        result = store.load(cell) if cell.audit else None
        if result and result["audit"]["verdict"] != "not refuted":
            training, found = cell.training, result["audit"]
            place = f"{training.model}, {training.config.epochs} epochs, `{cell.column}`, seed {training.config.seed}"
            lines.append(f"{place}: {found['verdict']}. {shown(found['reason'])}")
    return ["### Audits", *about, bullets(lines or ["No claim was refuted, and none could not be judged."])]


def _settings(table: Table) -> str:
    """Every setting that was to be tried, also the losing ones."""
    tuning = table.experiment.tuning
    assert tuning is not None
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
    ]
    return f"Chosen by accuracy under `{tuning.text}` on held-out images, with one seed.\n\n{markdown_table(rows)}"


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
    alt = "Robust accuracy on held-out images over epochs, a line for each arm, with the smallest seed that was run."
    return [
        "### Robust overfitting",
        f"From the best epoch to the last, robust accuracy on held-out images falls by at most {largest:.1f} points on "
        f"average over seeds (`{arm}`; {title}). The best of many epochs is also a lucky one, so that small falls mean "
        "nothing. The weights of the best epoch are those that were attacked. Robust accuracy here is that of averaged "
        f"weights under {' and '.join(attacks)}, on at most 1,000 of the held-out images.",
        _image("validation", alt),
        markdown_table(rows),
    ]


def _collapses(store: Store, experiment: Experiment, cells: Sequence[Cell]) -> list[str]:
    """Which trainings lost their robustness on the way, those of losing settings among them."""
    settings = {arm.column: arm.settings for group in experiment.groups for arm in group.arms}
    curves = {cell.training.hash: (cell, list(_curve(store, cell).values())) for cell in cells}
    known = [(cell, curve) for cell, curve in curves.values() if curve]
    if not known:
        return []
    lines = []
    for cell, curve in known:
        ends = [end for end in range(1, len(curve) + 1) if has_collapsed([value / 100 for value in curve[:end]])]
        if ends:
            chosen = "" if cell.setting is None else f", {setting_text(settings[cell.column][cell.setting])}"
            place = f"{_title(cell)}, `{cell.column}`{chosen}, seed {cell.training.config.seed}"
            lines.append(f"{place}: from {max(curve[: ends[0]]):.1f} to {curve[ends[0] - 1]:.1f}")
    about = (
        "Robust accuracy on held-out images that falls below half of its best, and by more than 10 points, is called "
        f"catastrophic overfitting. It was seen in {len(lines)} of {counted(len(known), 'training')}"
    )
    return ["### Catastrophic overfitting", f"{about}{':' if lines else '.'}", *([bullets(lines)] if lines else [])]


def _curve(store: Store, cell: Cell) -> dict[int, float]:
    """By epoch the robust accuracy of a finished cell's training on held-out images, where it was measured."""
    metrics = RunDirectory(store.model_folder(cell.training)).metrics if store.load(cell) else []
    values = {entry["epoch"]: entry.get("validation_robust_accuracy") for entry in metrics}
    return {epoch: 100 * value for epoch, value in values.items() if value is not None}


def _title(cell: Cell) -> str:
    return f"{cell.training.dataset}, {cell.training.model}, {cell.training.config.epochs} epochs"


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


def _not_run(table: Table, choices: Mapping[str, int]) -> str:
    lines = []
    for block in table.blocks:
        missing = {column: seeds for column, seeds in block.not_run.items() if seeds}
        texts = [f"`{column}` (seeds {listed(seeds)})" for column, seeds in missing.items()]
        if texts:
            lines.append(f"{block.dataset}, {block.model}: {', '.join(texts)}")
    arms = [arm.column for group in table.experiment.groups for arm in group.arms if arm.settings]
    left = [column for column in dict.fromkeys(arms) if column not in choices]
    if left:
        lines.append(f"Arms of which not all settings were tried, so that none is chosen: {quoted(left)}")
    return bullets(lines or ["Every arm and seed of the study was run."])
