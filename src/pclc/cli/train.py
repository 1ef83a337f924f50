"""``pclc train``: train one model; a run that is killed resumes."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pclc.cli.headings import on_machine
from pclc.cli.output import interruptible

if TYPE_CHECKING:
    from pclc.training import AdversarialConfig, TrainConfig

# Headings of the help that no other command has.
_training = partial(typer.Option, rich_help_panel="Training")
_adversarial = partial(typer.Option, rich_help_panel="Adversarial training, with --adversarial")


def train(
    dataset: Annotated[str, typer.Argument(help="digits, mnist, kmnist, fashion-mnist, cifar10, cifar100, svhn, ...")],
    loss: Annotated[
        str | None,
        typer.Option(
            help="ce, gce, cot, pc, pc-lc, pc-lc-authors; by default pc-lc, or ce with --adversarial (not paper-...)"
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A network, or package.module:factory; by default the paper's.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of weights, order, augmentation, dropout and crafting.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default runs/DATASET-MODEL-LOSS-SEED.")] = None,
    epochs: Annotated[int | None, _training(help="Epochs of the second phase.")] = None,
    warm_up_epochs: Annotated[
        int | None,
        _training(
            help="Epochs of the first phase; by default as many as of the second, or 0 with --adversarial and ce.",
        ),
    ] = None,
    batch_size: Annotated[int | None, _training(help="Examples per step, over all processes together.")] = None,
    lr: Annotated[float | None, _training(help="Learning rate at the start of each phase.")] = None,
    lr_factor: Annotated[float | None, _training(help="Factor for the learning rate at each milestone.")] = None,
    milestones: Annotated[str | None, _training(help="Milestones as shares of a phase, such as 0.5,0.75.")] = None,
    weight_decay: Annotated[float | None, _training(help="L2 penalty.")] = None,
    margin: Annotated[float | None, _training(help="xi of PC.")] = None,
    logit_weight: Annotated[float | None, _training(help="lambda of PC-LC; weight of LC in method pc.")] = None,
    alpha: Annotated[float | None, _training(help="Exponent of GCE.")] = None,
    label_smoothing: Annotated[float | None, _training(help="Label smoothing of cross-entropy, such as 0.1.")] = None,
    augmentation: Annotated[str | None, _training(help="none, crop, crop-flip, authors.")] = None,
    validation: Annotated[float | None, _training(help="Share of the training set to hold out.")] = None,
    optimizer: Annotated[str | None, _training(help="adam, or sgd with Nesterov momentum.")] = None,
    momentum: Annotated[float | None, _training(help="Momentum of sgd; by default 0.9.")] = None,
    schedule: Annotated[str | None, _training(help="step, or cosine: a linear warm-up, then a cosine to 0.")] = None,
    warm_up_share: Annotated[float | None, _training(help="Share of each phase in which the cosine rises.")] = None,
    ema: Annotated[float | None, _training(help="Average the weights; the decay per step, such as 0.999.")] = None,
    adversarial: Annotated[
        str | None,
        _adversarial(
            help="The recipe: paper-grey, paper-cifar10, madry-mnist, madry-cifar10, trades, mart, fast, pc, "
            "pc-fast. All but paper-... set optimizer, schedule and averaging too.",
        ),
    ] = None,
    method: Annotated[str | None, _adversarial(help="Another method: mix, madry, trades, mart, fast, pc.")] = None,
    eps: Annotated[str | None, _adversarial(help="Radius, such as 0.3 or 8/255, or a range 0.1,0.3.")] = None,
    norm: Annotated[str | None, _adversarial(help="Linf or L2, which needs --eps too.")] = None,
    step_size: Annotated[str | None, _adversarial(help="Size of a crafting step, such as 2/255.")] = None,
    steps: Annotated[int | None, _adversarial(help="Number of crafting steps.")] = None,
    objective: Annotated[str | None, _adversarial(help="What crafting maximises: ce, margin, kl, ...")] = None,
    beta: Annotated[float | None, _adversarial(help="Weight of KL in trades and mart, of PC in pc.")] = None,
    clean_share: Annotated[float | None, _adversarial(help="With pc: share of cross-entropy on clean images.")] = None,
    kl_weight: Annotated[float | None, _adversarial(help="With pc: weight of KL from clean to adversarial.")] = None,
    ramp_epochs: Annotated[int | None, _adversarial(help="Epochs over which eps grows to its value.")] = None,
    root: Annotated[Path | None, on_machine(help="Folder with the data sets.")] = None,
    device: Annotated[str | None, on_machine(help="cpu, cuda, cuda:1, ...")] = None,
    precision: Annotated[str, on_machine(help="auto, fp32, tf32, bf16.")] = "auto",
    compile: Annotated[  # noqa: A002
        bool | None, on_machine(help="Use torch.compile; by default where it pays off.")
    ] = None,
    as_json: Annotated[bool, on_machine("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Train one model with the paper's protocol; every number of it can be changed.

    A run can be killed at any moment; the same command resumes it. On several GPUs or hosts:
    `torchrun --nproc-per-node 8 -m pclc train cifar10`.

    Examples:

    - `pclc train digits --loss pc-lc`

    - `pclc train cifar10 --loss ce --seed 1 --out runs/ce-1`

    - `pclc train cifar10 --model preact_resnet18 --adversarial pc --validation 0.02`

    - `pclc train cifar10 --adversarial trades --eps 4/255 --epochs 30`
    """
    typed = locals()  # every option by its name
    import os
    from dataclasses import fields

    import torch

    import pclc
    from pclc.training import ADVERSARIAL_PRESETS, PRESETS, TrainConfig, adversarial_config, paper_config

    radii = _numbers("--eps", eps or "")
    crafting: dict[str, Any] = {
        "method": method,
        "eps": None if eps is None else radii[0] if len(radii) == 1 else radii,
        "norm": norm,
        "alpha": None if step_size is None else _number("--step-size", step_size),
        "steps": steps,
        "objective": objective,
        "beta": beta,
        "clean_share": clean_share,
        "kl_weight": kl_weight,
        "ramp_epochs": ramp_epochs,
    }
    changes = {field.name: typed[field.name] for field in fields(TrainConfig) if field.name != "adversarial"}
    changes["milestones"] = None if milestones is None else _numbers("--milestones", milestones)
    if adversarial in ADVERSARIAL_PRESETS and (method or ADVERSARIAL_PRESETS[adversarial].method) == "pc":
        crafting |= {name: changes.pop(name) for name in ("margin", "logit_weight")}
    recipe = _recipe(adversarial, crafting)
    given = {name: value for name, value in changes.items() if value is not None}
    train_set = pclc.load_dataset(dataset, "train", root)
    if recipe is not None:
        config = adversarial_config(dataset, recipe, **given)
    else:
        both = {} if epochs is None else {"warm_up_epochs": max(0, epochs)}  # a negative number is refused as --epochs
        config = paper_config(dataset, **{**both, **given})
    if os.environ.get("RANK", "0") == "0":
        for sentence in _without_effect(config, given):
            typer.echo(f"pclc: {sentence}", err=True)
    name = model or PRESETS[dataset].model
    execution = pclc.Execution(device=device, precision=precision, compile=compile)  # type: ignore[arg-type]
    torch.manual_seed(seed)
    channels, size = train_set.images.shape[1:3]
    network = pclc.create_model(name, num_classes=len(train_set.classes), in_channels=channels, image_size=size)
    trained_with = f"{config.loss}-{adversarial}" if adversarial else config.loss
    out = out or Path("runs") / f"{dataset}-{name.replace(':', '.')}-{trained_with}-{seed}"
    with interruptible(lambda: _what_is_kept(out)):
        result = pclc.train(
            network,
            train_set,
            config,
            out=out,
            execution=execution,
            test=pclc.load_dataset(dataset, "test", root),
            progress=True,
        )
    if os.environ.get("RANK", "0") != "0":
        return
    if as_json:
        typer.echo(json.dumps({"run": str(out), **pclc.RunDirectory(out).result}, indent=1))
    else:
        typer.echo(
            f"{out}: accuracy {result.test_accuracy:.4f} on the test set, after {len(result.history)} epochs in "
            f"{result.seconds:.1f} s and {result.setup_seconds:.1f} s of set-up"
            + (f"; the weights are of epoch {result.best_epoch}, the best under attack" if result.best_epoch else "")
        )


def _what_is_kept(out: Path) -> str:
    """What the same command does after an interruption."""
    import pclc

    kept = pclc.RunDirectory(out).load_checkpoint()
    if kept is None:
        return "no checkpoint was written yet, so the same command starts again."
    return f"the same command resumes after epoch {len(kept['history'])}."


# The losses and schedules that use an option. With others it is not refused: the command of a run repeats them all.
_LOSSES = {
    "margin": ("pc", "pc-lc", "pc-lc-authors"),
    "logit_weight": ("pc-lc", "pc-lc-authors"),
    "alpha": ("gce",),
}
_SCHEDULES = {"lr_factor": ("step",), "milestones": ("step",), "warm_up_share": ("cosine",)}


def _without_effect(config: "TrainConfig", given: dict[str, Any]) -> list[str]:
    """A sentence for each option that was given but has no effect."""
    return [
        f"--{name.replace('_', '-')} has no effect with --{option} {value}, only with {' or '.join(users)}."
        for option, value, numbers in (("loss", config.loss, _LOSSES), ("schedule", config.schedule, _SCHEDULES))
        for name, users in numbers.items()
        if name in given and value not in users
    ]


def _recipe(name: str | None, changes: dict[str, Any]) -> "AdversarialConfig | None":
    """The recipe of that name with its changes, or None."""
    from pclc.training import ADVERSARIAL_PRESETS, adversarial_preset

    given = {key: value for key, value in changes.items() if value is not None}
    if name is not None:
        return adversarial_preset(name, **given)
    if given:
        options = ", ".join("--step-size" if key == "alpha" else f"--{key.replace('_', '-')}" for key in given)
        raise ValueError(
            f"Expected {options} to be used with --adversarial, one of {', '.join(ADVERSARIAL_PRESETS)}, but got none."
        )
    return None


def _numbers(option: str, text: str) -> tuple[float, ...]:
    return tuple(_number(option, part) for part in text.split(",") if text)


def _number(option: str, text: str) -> float:
    """A number or a fraction a/b."""
    top, slash, bottom = text.partition("/")
    try:
        return float(top) / (float(bottom) if slash else 1)
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"Expected {option} to be a number such as 0.3 or 8/255, but got {text!r}.") from None
