"""Experiments as data: what is trained, attacked and analysed for a table or a figure of the paper."""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from pclc.data.registry import describe
from pclc.execution.settings import Precision
from pclc.experiments.groups import Analysis, Arm, AuditRequest, Group, NamedAttack, parse_group
from pclc.experiments.published import PublishedFigure, load_published
from pclc.experiments.toml import check_keys, check_one, read_toml
from pclc.hashes import settings_hash
from pclc.hints import did_you_mean
from pclc.training import TrainConfig, adversarial_config, adversarial_preset, paper_config

# What stands for a loss in each variant: the formulas as printed, or as in the authors' code.
VARIANTS: dict[str, dict[str, str]] = {"paper": {}, "authors": {"pc-lc": "pc-lc-authors"}}

# Part of every hash. A change of the code that changes results under the same settings has to raise it.
_RESULTS_VERSION = 1


@dataclass(frozen=True)
class Training:
    """One model: data, network and recipe, which with its seed decide the weights.

    Attributes:
        dataset: name.
        model: name of the network.
        config: the recipe.
        precision: in which it is trained; None: that of the run, which is the fast one of the device.
    """

    dataset: str
    model: str
    config: TrainConfig
    precision: Precision | None = None

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        content: dict[str, Any] = {"dataset": self.dataset, "model": self.model, "train": self.config.as_dict()}
        if self.precision is not None:
            content["precision"] = self.precision
        return content

    @property
    def hash(self) -> str:
        """Sixteen digits that stand for it."""
        return settings_hash({"results": _RESULTS_VERSION, **self.as_dict()})

    def shortened(self, epochs: int) -> "Training":
        """The same with at most so many epochs in each phase: for trying things out, another model."""
        config = self.config
        shorter = {name: min(getattr(config, name), epochs) for name in ("warm_up_epochs", "epochs")}
        return replace(self, config=replace(config, **shorter))


@dataclass(frozen=True)
class Cell:
    """A model and all that is asked of it; independent of every other cell.

    Attributes:
        training: of the model.
        column: of the table.
        variant: "paper" or "authors".
        published_column: of the paper's table, with which it is compared.
        attacks: rows of the table besides "clean", with random numbers from the training's seed.
        analyses: what else is computed.
        substitute: on which attacks with `transfer` are crafted.
        examples: how many test images, from the first on; None: all.
        split: "test", or "validation": what the training held out, on which settings are chosen.
        setting: number of the arm's setting where several are tried.
        audit: of the model, or None.
        precision: in which attacks craft; None: that of the run, which is the fast one of the device.
    """

    training: Training
    column: str
    variant: str
    published_column: str
    attacks: tuple[NamedAttack, ...] = ()
    analyses: tuple[Analysis, ...] = ()
    substitute: Training | None = None
    examples: int | None = None
    split: str = "test"
    setting: int | None = None
    audit: AuditRequest | None = None
    precision: Precision | None = None

    def as_dict(self) -> dict[str, Any]:
        """All that decides the result, for JSON; names of rows and columns do not."""
        content: dict[str, Any] = {
            "training": self.training.as_dict(),
            "attacks": sorted([attack.text, attack.transfer] for attack in self.attacks),
            "analyses": [
                [analysis.kind, analysis.examples, [attack.text for attack in analysis.attacks]]
                for analysis in self.analyses
            ],
            "substitute": self.substitute and self.substitute.as_dict(),
        }
        # Written down only where they say something, so that older cells keep their hash.
        if self.examples is not None:
            content["examples"] = self.examples
        if self.split != "test":
            content["split"] = self.split
        if self.audit is not None:
            content["audit"] = asdict(self.audit)
        if self.precision is not None:
            content["precision"] = self.precision
        return content

    @property
    def trainings(self) -> list[Training]:
        """Of its model, and of the substitute where there is one."""
        return [training for training in (self.training, self.substitute) if training is not None]

    @property
    def images(self) -> int:
        """How many there are in its split."""
        counts = describe(self.training.dataset).counts
        if self.split == "validation":
            return round(self.training.config.validation * counts["train"])
        return counts["test"]

    @property
    def attacks_folder(self) -> str:
        """Where, among the files of its model, attacks on these images in this precision leave what they find."""
        return "-".join(["attacks", self.split, str(self.examples or "all"), *filter(None, [self.precision])])

    @property
    def hash(self) -> str:
        """Sixteen digits that stand for everything that decides the result."""
        return settings_hash({"results": _RESULTS_VERSION, **self.as_dict()})


@dataclass(frozen=True)
class Experiment:
    """A table or a figure.

    Attributes:
        name: "table1", ...
        title: what it shows.
        published: name of the paper's table whose rows `attacks` are, or None.
        groups: what is run.
        tuning: the attack under which the settings of arms are compared on held-out images, with the network and the
            first seed of the group in which the arm occurs first; None where no arm has settings.
        baselines: columns with which the others are compared; none: the first.
    """

    name: str
    title: str
    published: str | None
    groups: tuple[Group, ...]
    tuning: NamedAttack | None = None
    baselines: tuple[str, ...] = ()

    @property
    def datasets(self) -> tuple[str, ...]:
        """Of all groups, each once."""
        return tuple(dict.fromkeys(name for group in self.groups for name in group.datasets))

    @property
    def arms(self) -> dict[str, Arm]:
        """By column, as the first group with that column has it."""
        found: dict[str, Arm] = {}
        for group in self.groups:
            for arm in group.arms:
                found.setdefault(arm.column, arm)
        return found

    def figure(self, cell: Cell, row: str) -> PublishedFigure | None:
        """The published figure for a row ("clean" or the name of an attack) of a cell, where there is one."""
        return _figures(self.published).get((cell.training.dataset, cell.published_column, row))

    def cells(
        self,
        datasets: Collection[str] | None = None,
        columns: Collection[str] | None = None,
        seeds: Collection[int] | None = None,
        variant: str = "paper",
        choices: Mapping[str, int] | None = None,
        examples: int | None = None,
        epochs: int | None = None,
    ) -> list[Cell]:
        """The cells, all or those that are chosen.

        Args:
            datasets: names; None: all of the experiment.
            columns: names; None: all.
            seeds: instead of the experiment's own.
            variant: "paper": PC-LC as printed; "authors": as in the authors' code.
            choices: by column, the number of its setting; arms with settings and without a choice are left out.
            examples: only the first so many test images.
            epochs: at most so many in each phase of each training.

        Example:
            >>> cells = load_experiment("gaps").cells(datasets=["cifar100"], seeds=[0])
            >>> [(cell.column, cell.training.model, cell.training.config.epochs) for cell in cells]
            [('ce', 'resnet56', 150), ('pc-lc', 'resnet56', 150), ('pc', 'resnet56', 150)]
        """
        if variant not in VARIANTS:
            raise ValueError(f"Expected `variant` to be one of {', '.join(VARIANTS)}, but got {variant!r}.")
        check_choice("datasets", datasets, self.datasets, self.name)
        check_choice("columns", columns, self.arms, self.name)
        choices = choices or {}
        cells = [
            _cell(group, dataset, arm, seed, variant, choices.get(arm.column))
            for group in self.groups
            for dataset in group.datasets
            if datasets is None or dataset in datasets
            for arm in group.arms
            if (columns is None or arm.column in columns) and (not arm.settings or arm.column in choices)
            for seed in (group.seeds if seeds is None else seeds)
        ]
        return list(_limited(cells, examples, epochs))

    def tuning_cells(
        self, columns: Collection[str] | None = None, examples: int | None = None, epochs: int | None = None
    ) -> list[Cell]:
        """One cell for each setting of each arm that has some, to be chosen from (see `tuning`)."""
        if self.tuning is None:
            return []
        first: dict[str, tuple[Group, Arm]] = {}
        for group in self.groups:
            for arm in group.arms:
                first.setdefault(arm.column, (group, arm))
        cells = [
            replace(
                _cell(group, group.datasets[0], arm, group.seeds[0], "paper", setting),
                attacks=(self.tuning,),
                analyses=(),
                substitute=None,
                split="validation",
                audit=None,
            )
            for group, arm in first.values()
            if columns is None or arm.column in columns
            for setting in range(len(arm.settings))
        ]
        return list(_limited(cells, examples, epochs))


def experiment_names() -> tuple[str, ...]:
    """The experiments that come with the package.

    Example:
        >>> experiment_names()[:3]
        ('adversarial', 'augmentation', 'cw-space')
    """
    folder = files("pclc.experiments") / "definitions"
    return tuple(sorted(path.name.removesuffix(".toml") for path in folder.iterdir() if path.name.endswith(".toml")))


def load_experiment(name: str) -> Experiment:
    """An experiment by name, or one of yours by the path of its TOML file.

    Example:
        >>> load_experiment("figure3").groups[0].analyses[1].attacks[0].text
        'fgsm(eps=0.3, stop="never")'
    """
    if name.endswith(".toml"):
        if Path(name).stem in experiment_names():  # whose table and whose claims it would take
            raise ValueError(f"Expected {name} to have a name of its own, but {Path(name).stem} is one of the package.")
        try:
            content = tomllib.loads(Path(name).read_text(encoding="utf-8"))
        except tomllib.TOMLDecodeError as error:
            raise ValueError(f"Expected {name} to be a TOML file, but got: {error}.") from error
        return parse_experiment(Path(name).stem, content)
    if name not in experiment_names():
        known, hint = ", ".join(experiment_names()), did_you_mean(name.lower(), experiment_names())
        raise ValueError(f"Expected `name` to be one of {known}, but got {name!r}.{hint}")
    return _of_the_package(name)


@cache
def _of_the_package(name: str) -> Experiment:
    return parse_experiment(name, read_toml("definitions", name))


def parse_experiment(name: str, content: Mapping[str, Any]) -> Experiment:
    """The experiment that the content of a file describes; anything that is not understood is refused."""
    optional = {"published": str, "tuning": str, "baselines": list}
    check_keys(content, name, required={"title": str, "groups": list}, optional=optional)
    if not content["groups"]:
        raise ValueError(f"Expected `groups` of {name} to have at least one, but got none.")
    first = parse_group(content["groups"][0], {}, f"a group of {name}")
    arms = {arm.column: arm for arm in first.arms}
    groups = (first, *(parse_group(group, arms, f"a group of {name}") for group in content["groups"][1:]))
    tuning = NamedAttack("tuning", content["tuning"]) if "tuning" in content else None
    baselines = tuple(content.get("baselines", ()))
    experiment = Experiment(name, content["title"], content.get("published"), groups, tuning, baselines)
    for group in groups:
        _check_published(experiment, group)
    _check_settings(experiment)
    _check_once(experiment)
    # Every training configuration is made once, so that a wrong one is refused here.
    tried = experiment.tuning_cells()
    experiment.cells(choices={cell.column: cell.setting or 0 for cell in tried})
    return experiment


def _cell(group: Group, dataset: str, arm: Arm, seed: int, variant: str, setting: int | None) -> Cell:
    more = arm.settings[setting] if setting is not None and arm.settings else {}
    changes = {**arm.changes, **more.get("train", {})}
    recipe = {**arm.recipe, **more.get("recipe", {})}
    loss = VARIANTS[variant].get(arm.loss, arm.loss)
    try:
        if arm.adversarial is not None:
            preset = adversarial_preset(arm.adversarial, **recipe)
            config = adversarial_config(dataset, preset, loss=loss, seed=seed, **changes)
        else:
            config = paper_config(dataset, loss=loss, seed=seed, **changes)
    except (TypeError, ValueError) as error:  # an unknown name, and a value of another type, are of the first kind
        raise ValueError(f"`train` or `recipe` of `{arm.column}`: {error}") from error
    training = Training(dataset, group.model, config, group.trained_in)
    substitute = group.substitute and Training(dataset, group.substitute, paper_config(dataset, loss="ce", seed=seed))
    return Cell(
        training=training,
        column=arm.column,
        variant=variant,
        published_column=arm.published_column,
        attacks=(*group.attacks, *group.extra),
        analyses=group.analyses,
        substitute=substitute or None,
        setting=setting if arm.settings else None,
        audit=group.audit if group.audited is None or seed < group.audited else None,
        precision=group.precision,
    )


def _limited(cells: list[Cell], examples: int | None, epochs: int | None) -> Iterator[Cell]:
    """The cells with fewer images or epochs: other cells, with other hashes."""
    for name, number in (("examples", examples), ("epochs", epochs)):
        if number is not None and number < 1:
            raise ValueError(f"Expected `{name}` to be at least 1, but got {number!r}.")
    for cell in cells:
        # Of held-out images there are fewer than of test images: then all are taken.
        all_of_them = examples is None or (cell.split == "validation" and examples > cell.images)
        limited = cell if all_of_them else replace(cell, examples=examples)
        if epochs is not None:
            substitute = limited.substitute and limited.substitute.shortened(epochs)
            limited = replace(limited, training=limited.training.shortened(epochs), substitute=substitute)
        yield limited


def _check_settings(experiment: Experiment) -> None:
    """Settings are chosen fairly: the same number for each arm, on images that none of them was trained on."""
    arms = [arm for group in experiment.groups for arm in group.arms]
    for arm in arms:
        if arm.adversarial is None and (arm.recipe or any("recipe" in setting for setting in arm.settings)):
            raise ValueError(f"Expected {arm.column!r} of {experiment.name} to have `adversarial` with its `recipe`.")
    tuned = [arm for arm in arms if arm.settings]
    if bool(tuned) != (experiment.tuning is not None):
        raise ValueError(f"Expected {experiment.name} to have `tuning` and arms with `settings` together.")
    if len({len(arm.settings) for arm in tuned}) > 1:
        raise ValueError(f"Expected the arms of {experiment.name} to have the same number of settings.")
    for arm in tuned:
        if any(other.settings != arm.settings for other in arms if other.column == arm.column):
            raise ValueError(f"Expected the settings of {arm.column!r} to be the same in every group.")
        if not arm.changes.get("validation"):
            raise ValueError(f"Expected {arm.column!r} of {experiment.name} to hold out images: train.validation.")
    for name in experiment.baselines:
        check_one("baselines", name, experiment.arms, experiment.name)
    if experiment.tuning is not None:
        experiment.tuning.attack  # noqa: B018  # made once, so that a wrong text is refused here


def _check_once(experiment: Experiment) -> None:
    """A column of a table is one kind of model; only a study tells lengths of training apart."""
    seen = set()
    for group in experiment.groups:
        for dataset, arm in product(group.datasets, group.arms):
            place = dataset, group.model, arm.changes.get("epochs") if experiment.tuning else None, arm.column
            if place in seen:
                raise ValueError(
                    f"Expected the column {arm.column!r} of {experiment.name} once for {dataset} and {group.model}, "
                    "but got it again."
                )
            seen.add(place)


def _check_published(experiment: Experiment, group: Group) -> None:
    """Rows under `attacks` and `transfer` are the paper's, those under `extra` are not."""
    if experiment.published is None:
        return
    figures = _figures(experiment.published)
    for dataset in group.datasets:
        for arm in group.arms:
            place = f"{dataset}, {arm.published_column} of {experiment.published}"
            for attack in group.attacks:
                if (dataset, arm.published_column, attack.name) not in figures:
                    raise ValueError(f"Expected a row that is published for {place}, but got {attack.name!r}.")
            for attack in group.extra:
                if (dataset, arm.published_column, attack.name) in figures:
                    raise ValueError(f"Expected `extra` to be what is not published for {place}: {attack.name!r} is.")


@cache
def _figures(table: str | None) -> dict[tuple[str, str, str], PublishedFigure]:
    figures = load_published(table) if table else ()
    return {(figure.dataset, figure.column, figure.row): figure for figure in figures}


def check_choice(name: str, chosen: Collection[str] | None, known: Collection[str], where: str) -> None:
    """Refuse what is not among the known."""
    for value in chosen or ():
        if value not in known:
            raise ValueError(f"Expected `{name}` to be among those of {where} ({', '.join(known)}), but got {value!r}.")
