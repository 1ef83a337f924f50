"""The whole path of an experiment in seconds: its shape stays, everything in it becomes small."""

import warnings
from dataclasses import fields, replace

from pclc.attacks import APGD, Attack, AutoAttack, Square, UnreachableWarning
from pclc.experiments.experiment import Experiment
from pclc.experiments.groups import Arm, NamedAttack

# What makes an attack long, and how much of it is left.
_FEW = {"steps": 2, "search_steps": 1, "samples": 4, "queries": 5, "restarts": 1, "targets": 2}


def smoke(experiment: Experiment) -> Experiment:
    """The experiment on digits with one seed, its first and last arm, two settings of each, and attacks of two steps.

    An audit becomes a quick one, AutoAttack a custom one of two short components. Rows keep their names, so the figures
    mean nothing; what is shown is that all of it runs.

    Example:
        >>> from pclc.experiments.experiment import load_experiment
        >>> cells = smoke(load_experiment("table3")).cells(examples=10, epochs=1)
        >>> [(cell.column, cell.training.dataset, cell.training.model) for cell in cells]
        [('ce', 'digits', 'lenet8'), ('pc-lc', 'digits', 'lenet8')]
    """
    first = experiment.groups[0]
    group = replace(
        first,
        datasets=("digits",),
        model="lenet8",
        seeds=(0,),
        arms=tuple(_short(first.arms[i]) for i in sorted({0, len(first.arms) - 1})),
        attacks=tuple(_quick(attack) for attack in first.attacks),
        extra=tuple(_quick(attack) for attack in first.extra),
        analyses=tuple(
            replace(analysis, attacks=tuple(_quick(attack) for attack in analysis.attacks))
            for analysis in first.analyses
        ),
        substitute=first.substitute and "lenet8",
        audit=first.audit and replace(first.audit, mode="quick"),
    )
    return replace(
        experiment,
        name=f"{experiment.name}-smoke",
        title=f"{experiment.title}, as a smoke run on digits",
        groups=(group,),
        tuning=experiment.tuning and _quick(experiment.tuning),
    )


def _short(arm: Arm) -> Arm:
    # A share that suits tens of thousands of images leaves too few of digits to speak of.
    held_out = {"validation": 0.1} if arm.changes.get("validation") else {}
    return replace(arm, changes={**arm.changes, **held_out}, settings=arm.settings[:2])


def _quick(named: NamedAttack) -> NamedAttack:
    return replace(named, text=str(_shortened(named.attack)))


def _shortened(attack: Attack) -> Attack:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreachableWarning)  # nobody expects a few steps to get anywhere
        if isinstance(attack, AutoAttack):
            few = APGD(attack.eps, steps=2, norm=attack.norm), Square(attack.eps, queries=5, norm=attack.norm)
            return replace(attack, version="custom", attacks=few)
        names = {field.name for field in fields(attack)} & _FEW.keys()
        return replace(attack, **{name: min(getattr(attack, name), _FEW[name]) for name in names})
