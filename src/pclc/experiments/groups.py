"""Groups of an experiment: data sets that share network, arms, attacks and analyses, read from a file."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import groupby
from typing import Any, get_args

from pclc.attacks import Attack, UnreachableWarning, parse_attack
from pclc.data import dataset_names
from pclc.evaluation.audit.ladder import Mode
from pclc.execution.settings import Precision
from pclc.experiments.toml import check_keys, check_one
from pclc.models import model_names

ANALYSES = ("ranks", "embedding", "gaps", "histograms", "confusion")


@dataclass(frozen=True)
class NamedAttack:
    """An attack in text form with the name of its row.

    Attributes:
        name: "pgd 0.1".
        text: as `pclc.attacks.parse_attack` reads it.
        transfer: crafted on the substitute, and only then shown to the model.
    """

    name: str
    text: str
    transfer: bool = False

    @property
    def kind(self) -> str:
        """What the attack is called, such as "pgd"."""
        return self.text.partition("(")[0]

    @property
    def attack(self) -> Attack:
        """The attack itself, without its substitute."""
        with warnings.catch_warnings():
            # Budgets that cannot reach eps are meant here: they are what the paper states.
            warnings.simplefilter("ignore", UnreachableWarning)
            return parse_attack(self.text)


@dataclass(frozen=True)
class Analysis:
    """What is computed of a model besides accuracies.

    Attributes:
        kind: one of `ANALYSES`.
        attacks: for "ranks" one for each attack and eps of the grid.
        examples: how many test images, from the first on; None: all.
    """

    kind: str
    attacks: tuple[NamedAttack, ...] = ()
    examples: int | None = None


@dataclass(frozen=True)
class AuditRequest:
    """An audit of a model, whose verdict is kept with the figures (`pclc.audit`).

    Attributes:
        eps: radius of the ball, in Linf.
        mode: "quick", "standard" or "full".
        examples: how many test images, from the first on; None: all.
    """

    eps: float
    mode: Mode = "full"
    examples: int | None = None


@dataclass(frozen=True)
class Arm:
    """A column: a loss, adversarial training by a recipe's name, and changes of both.

    Attributes:
        column: its name.
        loss: of the training.
        published_column: of the paper's table, with which it is compared.
        adversarial: name of a recipe, or None.
        changes: of the training configuration.
        recipe: changes of the recipe.
        settings: more changes, of `train` and `recipe`, of which one is chosen on held-out images.
    """

    column: str
    loss: str
    published_column: str
    adversarial: str | None
    changes: Mapping[str, Any]
    recipe: Mapping[str, Any] = field(default_factory=dict)
    settings: tuple[Mapping[str, Mapping[str, Any]], ...] = ()


@dataclass(frozen=True)
class Group:
    """Data sets that share network, seeds and attacks."""

    datasets: tuple[str, ...]
    model: str
    seeds: tuple[int, ...]
    arms: tuple[Arm, ...]
    attacks: tuple[NamedAttack, ...]
    extra: tuple[NamedAttack, ...]
    analyses: tuple[Analysis, ...]
    substitute: str | None
    audit: AuditRequest | None = None
    audited: int | None = None  # how many seeds, from the first on; None: all
    precision: Precision | None = None  # of attacks
    trained_in: Precision | None = None


def parse_group(content: Mapping[str, Any], arms: Mapping[str, Arm], where: str) -> Group:
    """A group of a file; an arm that is a text is one of `arms`, those of the first group."""
    check_keys(
        content,
        where,
        required={"datasets": list, "model": str, "seeds": int, "arms": list},
        optional={
            "eps": list,
            "attacks": dict,
            "transfer": dict,
            "extra": dict,
            "analyses": list,
            "substitute": str,
            "train": dict,
            "audit": dict,
            "precision": str,
            "trained_in": str,
        },
    )
    for dataset in content["datasets"]:
        check_one("datasets", dataset, dataset_names(), where)
    for key in ("model", "substitute"):
        if key in content:
            check_one(key, content[key], model_names(), where)
    for key in ("precision", "trained_in"):
        if key in content:
            check_one(key, content[key], [name for name in get_args(Precision) if name != "auto"], where)
    for key in ("datasets", "arms"):
        if not content[key]:
            raise ValueError(f"Expected `{key}` of {where} to name at least one, but got none.")
    if content["seeds"] < 1:
        raise ValueError(f"Expected `seeds` of {where} to be at least 1, but got {content['seeds']}.")
    if ("transfer" in content) != ("substitute" in content):
        raise ValueError(f"Expected {where} to have `transfer` and `substitute` together, but it has only one.")
    eps = content.get("eps", [])
    attacks = (*_attacks(content, "attacks", eps, where), *_attacks(content, "transfer", eps, where))
    extra = _attacks(content, "extra", eps, where)
    names = [attack.name for attack in (*attacks, *extra)]
    repeated = {name for name in names if names.count(name) > 1 or name == "clean"}
    if repeated:
        raise ValueError(f"Expected each row of {where} once, but got {', '.join(sorted(repeated))} again.")
    return Group(
        datasets=tuple(content["datasets"]),
        model=content["model"],
        seeds=tuple(range(content["seeds"])),
        arms=tuple(_arm(arm, arms, content.get("train", {}), f"an arm of {where}") for arm in content["arms"]),
        attacks=attacks,
        extra=extra,
        analyses=tuple(_analysis(analysis, f"an analysis of {where}") for analysis in content.get("analyses", [])),
        substitute=content.get("substitute"),
        audit=_audit(content["audit"], content["seeds"], f"`audit` of {where}") if "audit" in content else None,
        audited=content.get("audit", {}).get("seeds"),
        precision=content.get("precision"),
        trained_in=content.get("trained_in"),
    )


def _audit(content: Mapping[str, Any], seeds: int, where: str) -> AuditRequest:
    """An audit; its eps is a text, so that it can be a fraction such as 8/255.

    Of how many of the `seeds` of its group it is made belongs to the group: it changes nothing in those that have one.
    """
    check_keys(content, where, required={"eps": str}, optional={"mode": str, "examples": int, "seeds": int})
    mode = content.get("mode", "full")
    check_one("mode", mode, get_args(Mode), where)
    try:
        eps = float(Fraction(content["eps"]))
    except (ValueError, ZeroDivisionError):
        eps = 0.0
    if eps <= 0:
        raise ValueError(f'Expected `eps` of {where} to be a radius such as "8/255", but got {content["eps"]!r}.')
    if content.get("examples", 1) < 1:
        raise ValueError(f"Expected `examples` of {where} to be at least 1, but got {content['examples']}.")
    if not 1 <= content.get("seeds", 1) <= seeds:
        raise ValueError(
            f"Expected `seeds` of {where} to be from 1 to the {seeds} of the group, but got {content['seeds']}."
        )
    return AuditRequest(eps, mode, content.get("examples"))


def _arm(content: object, arms: Mapping[str, Arm], shared: Mapping[str, Any], where: str) -> Arm:
    """An arm; a text stands for the arm of that name in the first group."""
    if isinstance(content, str):
        check_one("arms", content, arms, where.removeprefix("an arm of "))
        return replace(arms[content], changes={**arms[content].changes, **shared})
    optional = {"published_column": str, "adversarial": str, "train": dict, "recipe": dict, "settings": list}
    check_keys(content, where, required={"column": str, "loss": str}, optional=optional)
    assert isinstance(content, dict)
    return Arm(
        column=content["column"],
        loss=content["loss"],
        published_column=str(content.get("published_column", content["column"])),
        adversarial=content.get("adversarial"),
        changes={**shared, **content.get("train", {})},
        recipe=content.get("recipe", {}),
        settings=tuple(_setting(setting, f"a setting of {where}") for setting in content.get("settings", ())),
    )


def _setting(content: Mapping[str, Any], where: str) -> Mapping[str, Mapping[str, Any]]:
    check_keys(content, where, required={}, optional={"train": dict, "recipe": dict})
    return content


def _analysis(content: Mapping[str, Any], where: str) -> Analysis:
    check_keys(content, where, required={"kind": str}, optional={"eps": list, "attacks": dict, "examples": int})
    check_one("kind", content["kind"], ANALYSES, where)
    if content.get("examples", 1) < 1:
        raise ValueError(f"Expected `examples` of {where} to be at least 1, but got {content['examples']}.")
    attacks = _attacks(content, "attacks", content.get("eps", []), where)
    if content["kind"] == "ranks":
        if not (attacks and all(hasattr(named.attack, "eps") for named in attacks)):
            raise ValueError(f"Expected `attacks` of {where} to be attacks with an eps, whose ranks are asked for.")
        grids = [[named.attack.eps for named in group] for _, group in groupby(attacks, lambda named: named.kind)]  # type: ignore[attr-defined]
        if len(grids) > len({named.kind for named in attacks}) or any(grid != sorted(set(grid)) for grid in grids):
            raise ValueError(f"Expected `attacks` of {where} to have each kind in a row, with an ascending eps.")
    return Analysis(content["kind"], attacks, content.get("examples"))


def _attacks(content: Mapping[str, Any], key: str, eps: list[float], where: str) -> tuple[NamedAttack, ...]:
    """The attacks of a table of names and texts; those with {eps} in their name once for each eps."""
    attacks = []
    for name, text in content.get(key, {}).items():
        if not isinstance(text, str):
            raise ValueError(f"Expected `{name}` of {where} to be an attack in text form, but got {text!r}.")
        if "{eps}" in name and not (eps and "{eps}" in text):
            raise ValueError(f"Expected `{name}` of {where} to have {{eps}} in its text, and a list `eps` beside it.")
        for value in eps if "{eps}" in name else [""]:
            row, filled = (part.replace("{eps}", str(value)) for part in (name, text))
            attack = NamedAttack(row, filled, transfer=key == "transfer")
            try:
                attack.attack  # noqa: B018  # made once, so that a wrong text is refused here
            except ValueError as error:
                raise ValueError(f"`{attack.name}` of {where}: {error}") from error
            attacks.append(attack)
    return tuple(attacks)
