"""The whole story on small images: train with several losses, attack over a range of eps, audit, and look closely.

Everything is in the run directories afterwards, from which the report is made. What is finished there is not done
again, so that an interrupted demo goes on where it was.
"""

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
from pclc.evaluation.audit.document import load_document
from pclc.evaluation.witnesses import DataSource
from pclc.execution import Execution
from pclc.experiments.experiment import load_experiment
from pclc.experiments.pages_text import joined
from pclc.training import PRESETS, AdversarialConfig, TrainConfig, adversarial_config, paper_config

NAMES = {"ce": "cross-entropy", "gce": "GCE", "pc-lc": "PC-LC", "adversarial": "adversarial training"}
_SMALL = (0.05, 0.1, 0.15, 0.2)  # eps for the digits, of whose 64 pixels each matters more
_TRAINED = {
    "ce": "is trained with cross-entropy",
    "gce": "with guided complement entropy, a rival loss",
    "pc-lc": "with the loss of the paper",
    "adversarial": "with cross-entropy on adversarial examples, which is known to help",
}
_CHOSEN = "The recipe of adversarial training was set with test images in view, so its figure may flatter it a little."
# How many pixels of training images two cores get through in the time that a demo may take: five epochs of MNIST.
_PIXELS = 250_000_000
_SMALL_LR = 0.001


class Budgets(NamedTuple):
    """The range of eps, and the one of it that sentences and audits are about."""

    eps: tuple[float, ...]
    main: float


class Extent(NamedTuple):
    """How much is done.

    `model` is the network, `epochs` are those of each phase, `examples` the test images that are attacked. None stands
    for the paper's network, its epochs, and all images.
    """

    model: str | None = None
    epochs: int | None = None
    examples: int | None = None


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

    eps: float
    examples: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    def sentences(self) -> list[str]:
        """What was found, in words that follow from the figures alone."""
        plain = [finding for finding in self.findings if finding.name != "adversarial"]
        first = (
            f"Under PGD on cross-entropy at eps {self.eps:.4g}, the figure that papers report, "
            f"{_listed(plain, lambda finding: finding.pgd)} of {self.examples} test images."
        )
        second = f"Over all attacks made here, {_listed(self.findings, lambda finding: finding.worst)}."
        verbs = {"refuted": "refutes", "not refuted": "does not refute", "cannot judge": "cannot judge"}
        judged = {
            verb: [NAMES[finding.name] for finding in self.findings if finding.verdict == verdict]
            for verdict, verb in verbs.items()
        }
        parts = [f"{verb} that of {joined(names)}" for verb, names in judged.items() if names]
        parts[0] = parts[0].replace(" that of ", " the figure of ")
        third = (
            f"The audit, which runs a PGD of its own, {joined(parts)}. A PGD figure only says how far PGD got, and "
            "only witnesses refute it."
        )
        return [first, second, third]


def budgets_of(dataset: Dataset) -> Budgets:
    """The paper's eps where it has the data set, and smaller ones for the digits.

    Example:
        >>> budgets_of(pclc.load_dataset("digits")).main
        0.1
    """
    paper = _paper_attacks(dataset.name)
    if paper:
        eps = tuple(sorted({float(attack.eps) for attack in paper}))  # type: ignore[attr-defined]
        return Budgets(eps, eps[(len(eps) - 1) // 2] if dataset.images.shape[1] == 1 else eps[0])
    if dataset.images.shape[1] > 1:
        return Budgets((2 / 255, 4 / 255, 8 / 255, 16 / 255), 8 / 255)
    return Budgets(_SMALL, 0.1)


def extent_of(train: Dataset, device: torch.device) -> Extent:
    """What is done by default: all of it on the digits, the paper's training on a GPU, a short one on a CPU.

    Short is about ten minutes on two cores. On colour images that takes a smaller network than the paper's.

    Example:
        >>> extent_of(pclc.load_dataset("digits"), torch.device("cpu"))
        Extent(model=None, epochs=None, examples=None)
    """
    if train.name == "digits":
        return Extent()
    if device.type != "cpu":
        return Extent(examples=1000)
    count, channels, height, width = train.images.shape
    epochs = max(1, min(5, _PIXELS // (count * height * width)))
    return Extent("lenet5" if channels > 1 else None, epochs, 500)


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


def configs_of(dataset: str, extent: Extent, adversarial: bool) -> dict[str, TrainConfig]:
    """What is trained: the paper's protocol with each loss, and adversarial training where it is asked for."""
    epochs = extent.epochs
    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs, "warm_up_epochs": epochs}
    if _is_small(dataset, extent.model):
        changes["lr"] = _SMALL_LR
    configs = {loss: paper_config(dataset, loss=loss, **changes) for loss in ("ce", "gce", "pc-lc")}
    if adversarial:
        configs["adversarial"] = _adversarial(dataset, extent)
    return configs


def run_demo(
    train: Dataset,
    test: Dataset,
    out: Path,
    execution: Execution,
    *,
    extent: Extent,
    adversarial: bool,
    progress: Callable[[str], None] = lambda text: None,
) -> DemoResult:
    """Train, attack, audit and look closely.

    Args:
        train: training set, with a preset.
        test: from which the first images are attacked.
        out: folder, with a run directory for each model.
        execution: where and how.
        extent: how much of it.
        adversarial: also train adversarially.
        progress: told what begins.
    """
    eps, main = budgets_of(train)
    device = execution.torch_device
    n = min(extent.examples or len(test), len(test))
    x, y = (test.images[:n].float() / 255).to(device), test.labels[:n].to(device)
    attacks = attacks_of(train.name, eps)
    findings = []
    configs = configs_of(train.name, extent, adversarial)
    notes = notes_of(train.name, extent, n, len(test), adversarial)
    for note in notes:
        progress(note)
    for i, (name, config) in enumerate(configs.items(), start=1):
        run, step = out / name, f"{i} of {len(configs)}, {NAMES[name]}"
        progress(f"{step}: training")
        model = _trained(train, test, extent.model, config, run, execution)
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
    return DemoResult(main, n, tuple(findings), notes)


def notes_of(dataset: str, extent: Extent, examples: int, available: int, adversarial: bool) -> tuple[str, ...]:
    """What a reader has to know about the demo's own choices, in sentences."""
    preset = PRESETS[dataset]
    trained = [f"{name} {how}" for name, how in _TRAINED.items() if adversarial or name != "adversarial"]
    notes = [f"The runs: {'; '.join(trained)}."]
    network, epochs = extent.model or preset.model, extent.epochs or preset.epochs
    if network != preset.model or epochs < preset.epochs:
        kind = "A short demo" if epochs < preset.epochs else "A demo with another network"
        rate = f" at a learning rate of {_SMALL_LR}" if _is_small(dataset, extent.model) else ""
        protocol = "the paper's protocol here" if _paper_attacks(dataset) else "the full demo"
        notes.append(
            f"{kind}: {network} trained for {epochs} + {epochs} epochs{rate}, where {protocol} is {preset.model} for "
            f"{preset.epochs} + {preset.epochs}; its figures are not those of that training."
        )
    if examples < available:
        notes.append(f"The first {examples:,} of {available:,} test images are attacked; the intervals allow for that.")
    if adversarial and dataset == "digits":
        notes.append(_CHOSEN)
    return tuple(notes)


def _trained(
    train: Dataset, test: Dataset, network: str | None, config: TrainConfig, run: Path, execution: Execution
) -> nn.Module:
    torch.manual_seed(config.seed)
    channels, size = train.images.shape[1:3]
    network = network or PRESETS[train.name].model
    model = pclc.create_model(network, len(train.classes), in_channels=channels, image_size=size)
    pclc.train(model, train, config, out=run, execution=execution, test=test, progress=True)
    # As the commands of the report load it: another memory layout would give other last bits, and another t-SNE.
    return pclc.load_model(run, str(execution.torch_device)).eval()


def _audited(model: nn.Module, test: Dataset, n: int, eps: float, loss: str, run: Path, execution: Execution) -> str:
    """The verdict, read where the same audit is there already; `pclc audit` may have put another in its place."""
    data = f"{test.name}, {test.split}"
    if (run / AUDIT).exists():
        found = load_document(run)
        asked = {"norm": "Linf", "eps": eps, "mode": "quick", "given": n, "seed": 0, "data": data, "loss": loss}
        wanted = {**asked, "model_hash": model_hash(model), "twin": None}
        if found["stated_claim"] is None and wanted == {key: found["conditions"].get(key) for key in wanted}:
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
        data_name=data,
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


def _adversarial(dataset: str, extent: Extent) -> TrainConfig:
    epochs = extent.epochs
    changes: dict[str, Any] = {} if epochs is None else {"epochs": epochs}
    if dataset == "digits":
        # There are few images: small batches make the steps that the averaged weights need.
        recipe = AdversarialConfig("madry", eps=0.15, steps=5, ramp_epochs=min(5, epochs or 5))
        return adversarial_config(dataset, recipe, **{"batch_size": 32, "epochs": 20, **changes})
    if _is_small(dataset, extent.model):
        changes["lr"] = PRESETS["mnist"].adversarial_lr
    grey = dataset in ("mnist", "kmnist", "fashion-mnist")
    return adversarial_config(dataset, "madry-mnist" if grey else "madry-cifar10", **changes)


def _is_small(dataset: str, model: str | None) -> bool:
    """Whether a network without BatchNorm stands in for one that has it; at the same rate it stays at chance."""
    return model == "lenet5" != PRESETS[dataset].model


def _listed(findings: Sequence[Finding], figure: Callable[[Finding], Accuracy]) -> str:
    """Such as "A keeps 1.0, B 2.0 and C 3.0 %"."""
    words = [f"{NAMES[finding.name]} {100 * figure(finding).value:.1f}" for finding in findings]
    name, _, value = words[0].rpartition(" ")
    return joined([f"{name} keeps {value}", *words[1:]]) + " %"
