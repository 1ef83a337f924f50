"""The whole story on small images: train with several losses, attack over a range of eps, audit, and look closely.

Everything is in the run directories afterwards, from which the report is made. What is finished there is not done
again, so that an interrupted demo goes on where it was.
"""

import json
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

import pclc
from pclc.analysis.inspection import FILE as INSPECTION
from pclc.analysis.inspection import inspect_model, load_inspection, save_inspection
from pclc.attacks import (
    BIM,
    FGSM,
    MIM,
    PGD,
    APGDTargeted,
    Attack,
    UnreachableWarning,
    ZeroGradientWarning,
)
from pclc.data.dataset import Dataset
from pclc.evaluation import Accuracy, Evaluation, SetupWarning, model_hash
from pclc.evaluation.audit import audit
from pclc.evaluation.audit.document import FILE as AUDIT
from pclc.evaluation.witnesses import DataSource
from pclc.execution import Execution
from pclc.experiments.experiment import load_experiment
from pclc.training import PRESETS, AdversarialConfig, TrainConfig, adversarial_config, paper_config

NAMES = {"ce": "cross-entropy", "gce": "GCE", "pc-lc": "PC-LC", "adversarial": "adversarial training"}
_SMALL = (0.05, 0.1, 0.15, 0.2)  # eps for images below 28 x 28, where a pixel matters more


class Budgets(NamedTuple):
    """The range of eps, and the one of it that sentences and audits are about."""

    eps: tuple[float, ...]
    main: float


@dataclass(frozen=True)
class Finding:
    """What the demo found of one model at the main eps."""

    name: str
    run: Path
    clean: Accuracy
    pgd: Accuracy
    worst: Accuracy
    verdict: str

    def row(self) -> dict[str, str]:
        """For a table."""
        return {
            "trained with": NAMES[self.name],
            "clean": f"{100 * self.clean.value:.1f}",
            "plain PGD": f"{100 * self.pgd.value:.1f}",
            "all attacks": f"{100 * self.worst.value:.1f}",
            "interval": f"{100 * self.worst.low:.1f} to {100 * self.worst.high:.1f}",
            "audit": self.verdict,
        }


@dataclass(frozen=True)
class DemoResult:
    """What the demo found."""

    dataset: str
    eps: float
    examples: int
    findings: tuple[Finding, ...]

    def sentences(self) -> list[str]:
        """What was found, in words that follow from the figures alone."""
        plain = [finding for finding in self.findings if finding.name != "adversarial"]
        first = (
            f"Under PGD on cross-entropy at eps {self.eps:.4g}, the figure that papers report, "
            f"{_listed(plain, lambda finding: finding.pgd)} of {self.examples} test images."
        )
        second = f"Over all attacks made here {_listed(self.findings, lambda finding: finding.worst)}."
        refuted, standing, open_ = (
            [NAMES[finding.name] for finding in self.findings if finding.verdict == verdict]
            for verdict in ("refuted", "not refuted", "cannot judge")
        )
        parts = [
            *([f"refutes the figure of {_and(refuted)}"] if refuted else []),
            *([f"does not refute that of {_and(standing)}"] if standing else []),
            *([f"cannot judge that of {_and(open_)}"] if open_ else []),
        ]
        third = f"The audit {_and(parts)}; a figure of PGD is how far PGD got, and only witnesses refute it."
        return [first, second, third]


def budgets_of(dataset: Dataset) -> Budgets:
    """The paper's eps where it has the data set, and smaller ones for the digits.

    Example:
        >>> budgets_of(pclc.load_dataset("digits")).main
        0.1
    """
    paper = _paper_attacks(dataset.name)
    if paper:
        eps = tuple(sorted({float(getattr(attack, "eps")) for attack in paper}))  # noqa: B009
        return Budgets(eps, eps[(len(eps) - 1) // 2] if dataset.images.shape[1] == 1 else eps[0])
    if dataset.images.shape[1] > 1:
        return Budgets((2 / 255, 4 / 255, 8 / 255, 16 / 255), 8 / 255)
    return Budgets(_SMALL, 0.1) if dataset.images.shape[2] < 28 else Budgets((0.1, 0.2, 0.3), 0.2)


def attacks_of(dataset: str, eps: Sequence[float]) -> list[Attack]:
    """The paper's attacks that have an eps, as its Table 1 has them, and two that look closer, at each eps."""
    closer: list[Attack] = [
        attack
        for e in eps
        for attack in (
            PGD(e, e / 10, 40, restarts=3, objective="margin"),
            APGDTargeted(e, steps=30),
        )
    ]
    paper = [attack for attack in _paper_attacks(dataset) if getattr(attack, "eps", None) in eps]
    return [*(paper or _like_the_paper(eps)), *closer]


def configs_of(dataset: str, epochs: int | None, adversarial: bool) -> dict[str, TrainConfig]:
    """What is trained: the paper's protocol with each loss, and adversarial training where it is asked for."""
    both = {} if epochs is None else {"epochs": epochs, "warm_up_epochs": epochs}
    configs = {loss: paper_config(dataset, loss=loss, **both) for loss in ("ce", "gce", "pc-lc")}
    if adversarial:
        configs["adversarial"] = _adversarial(dataset, epochs)
    return configs


def run_demo(
    train: Dataset,
    test: Dataset,
    out: Path,
    execution: Execution,
    *,
    budgets: Budgets | None = None,
    examples: int | None = None,
    epochs: int | None = None,
    adversarial: bool = True,
    progress: Callable[[str], None] = lambda text: None,
) -> DemoResult:
    """Train, attack, audit and look closely.

    Args:
        train: training set, with a preset.
        test: from which the first `examples` are attacked.
        out: folder, with a run directory for each model.
        execution: where and how.
        budgets: None: as `budgets_of` has them.
        examples: None: all.
        epochs: of each phase; None: as in the paper.
        adversarial: also train adversarially.
        progress: told what begins.
    """
    eps, main = budgets or budgets_of(train)
    device, n = execution.torch_device, min(examples or len(test), len(test))
    x, y = (test.images[:n].float() / 255).to(device), test.labels[:n].to(device)
    attacks = attacks_of(train.name, eps)
    findings = []
    configs = configs_of(train.name, epochs, adversarial)
    for i, (name, config) in enumerate(configs.items(), start=1):
        run, step = out / name, f"{i} of {len(configs)}, {NAMES[name]}"
        progress(f"{step}: training")
        model = _trained(train, test, config, run, execution)
        data = f"{test.name}, {test.split}"
        with warnings.catch_warnings():
            for category in (SetupWarning, UnreachableWarning, ZeroGradientWarning):
                warnings.simplefilter("ignore", category)  # what they say is in the results
            progress(f"{step}: {len(attacks)} attacks on {n} images")
            evaluation = pclc.evaluate(
                model, x, y, attacks, out=run, execution=execution, progress=True, model_name=str(run), data_name=data
            )
            progress(f"{step}: audit at eps {main:.4g}")
            verdict = _audited(model, test, n, main, config.loss, run, execution)
            progress(f"{step}: a close look")
            _inspected(model, x, y, test, main, eps, run, execution)
        findings.append(_finding(name, run, evaluation, main, verdict))
    return DemoResult(train.name, main, n, tuple(findings))


def _trained(train: Dataset, test: Dataset, config: TrainConfig, run: Path, execution: Execution) -> nn.Module:
    torch.manual_seed(config.seed)
    channels, size = train.images.shape[1:3]
    model = pclc.create_model(PRESETS[train.name].model, len(train.classes), in_channels=channels, image_size=size)
    done = pclc.train(model, train, config, out=run, execution=execution, test=test, progress=True)
    return execution.place(done.model).eval()


def _audited(model: nn.Module, test: Dataset, n: int, eps: float, loss: str, run: Path, execution: Execution) -> str:
    """The verdict, read where the same audit is there already."""
    wanted = (model_hash(model), "Linf", eps, "quick", n)
    if (run / AUDIT).exists():
        found = json.loads((run / AUDIT).read_bytes())
        if tuple(found["conditions"][key] for key in ("model_hash", "norm", "eps", "mode", "given")) == wanted:
            return str(found["verdict"])
    # A sample drawn as `pclc audit` draws it, so that the command gives the same audit.
    chosen = torch.randperm(len(test), generator=torch.Generator().manual_seed(0))[:n].sort().values
    result = audit(
        model,
        test.images[chosen].float() / 255,
        test.labels[chosen],
        "Linf",
        eps,
        mode="quick",
        index=chosen,
        loss=loss,
        data=DataSource.of(test),
        out=run,
        execution=execution,
        progress=True,
        model_name=str(run),
        data_name=f"{test.name}, {test.split}",
    )
    return result.verdict


def _inspected(
    model: nn.Module,
    x: torch.Tensor,
    y: torch.Tensor,
    test: Dataset,
    main: float,
    eps: Sequence[float],
    run: Path,
    execution: Execution,
) -> None:
    attack = PGD(main, main / 10, 40, objective="margin")
    if (run / INSPECTION).exists():
        found = load_inspection(run)
        if (found["conditions"]["model_hash"], found["attack"], found["n"]) == (model_hash(model), str(attack), len(x)):
            return
    grid = [FGSM(e, stop="never") for e in eps]
    data = f"{test.name}, {test.split}"
    save_inspection(inspect_model(model, x, y, test.classes, attack, grid, data_name=data, execution=execution), run)


def _finding(name: str, run: Path, evaluation: Evaluation, eps: float, verdict: str) -> Finding:
    pgd = next(
        outcome
        for outcome in evaluation.outcomes
        if outcome.eps == eps and outcome.attack.startswith("pgd(") and "objective" not in outcome.attack
    )
    worst = evaluation.worst_case("Linf", eps)
    return Finding(name, run, evaluation.clean_accuracy, pgd.accuracy, worst, verdict)


def _paper_attacks(dataset: str) -> list[Attack]:
    """The attacks with an eps of the paper's Table 1 for a data set; none where it has none."""
    for group in load_experiment("table1").groups:
        if dataset in group.datasets:
            return [named.attack for named in group.attacks if hasattr(named.attack, "eps")]
    return []


def _like_the_paper(eps: Sequence[float]) -> list[Attack]:
    return [
        attack
        for e in eps
        for attack in (
            FGSM(e, stop="never"),
            BIM(e, e / 10, 10, stop="never"),
            PGD(e, e / 10, 40, stop="never"),
            MIM(e, e / 10, 40, stop="never"),
        )
    ]


def _adversarial(dataset: str, epochs: int | None) -> TrainConfig:
    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    if dataset == "digits":
        # There are few images: small batches make the steps that the averaged weights need.
        recipe = AdversarialConfig("madry", eps=0.15, steps=5, ramp_epochs=min(5, epochs or 5))
        return adversarial_config(dataset, recipe, **{"batch_size": 32, "epochs": 20, **changes})
    grey = dataset in ("mnist", "kmnist", "fashion-mnist")
    return adversarial_config(dataset, "madry-mnist" if grey else "madry-cifar10", **changes)


def _listed(findings: Sequence[Finding], figure: Callable[[Finding], Accuracy]) -> str:
    """Such as "A keeps 1.0, B 2.0 and C 3.0 %"."""
    words = [f"{NAMES[finding.name]} {100 * figure(finding).value:.1f}" for finding in findings]
    name, _, value = words[0].rpartition(" ")
    return _and([f"{name} keeps {value}", *words[1:]]) + " %"


def _and(words: Sequence[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
