"""``pclc bench``: how fast, beside what, under which conditions."""

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from pclc.cli.output import print_table

bench_app = typer.Typer(no_args_is_help=True, help="Measure speed, memory and accuracy beside the alternatives.")

Dataset = Annotated[str, typer.Argument(help="The data set to train on.")]
Run = Annotated[Path, typer.Argument(help="Run directory of a trained model.")]
Model = Annotated[str | None, typer.Option(help="A network; by default the paper's for the data set.")]
Examples = Annotated[int, typer.Option(min=1, help="Test images, from the first on.")]
Rounds = Annotated[int, typer.Option(min=1, help="Rounds in which the variants take turns.")]
Compiled = Annotated[bool, typer.Option(help="On CUDA also compiled variants.")]
Root = Annotated[Path | None, typer.Option(help="Folder with the data sets.")]
Device = Annotated[str | None, typer.Option(help="cpu, cuda, cuda:1, ...; by default CUDA where there is one.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON instead of a table.")]
Save = Annotated[
    Path | None, typer.Option(help="Also write the result to this JSON file; `pclc bench page` reads results/bench.")
]


def _finish(result: Any, as_json: bool, save: Path | None, runs: Sequence[Path] = ()) -> Any:
    """Show the result and keep it; returned is what was kept."""
    result = _repeatable(result, runs)
    if as_json:
        typer.echo(json.dumps(asdict(result), indent=1))
    else:
        conditions = "; ".join(f"{name} {value}" for name, value in result.conditions.items())
        print_table(result.rows, title=conditions, lift=True)
    if save:  # last: where that fails, what was measured is at least on the screen
        result.save(save)
    return result


def _keep(result: Any, save: Path | None, runs: Sequence[Path] = ()) -> None:
    """Save what there is by now: hours are not lost to an interruption."""
    if save:
        _repeatable(result, runs).save(save)


def _repeatable(result: Any, runs: Sequence[Path]) -> Any:
    """The result with the commands that repeat it, also those that trained the models in `runs`."""
    from pclc.report.commands import training_command

    trained = (training_command(run) for run in runs)
    return replace(result, command=_typed(sys.argv[1:]), trained=tuple(trained))


def _typed(arguments: list[str]) -> str:
    """The command that repeats a result: what was typed, without where it went and where this machine keeps its runs.

    Example:
        >>> _typed(["bench", "attack", "/scratch/me/vgg13", "--save", "figures.json"])
        'pclc bench attack runs/vgg13'
    """
    kept = iter(arguments)
    words = ["pclc"]
    for word in kept:
        if word in ("--save", "--root", "--page"):
            next(kept, None)
        elif word != "--json" and not word.startswith(("--save=", "--root=", "--page=")):
            words.append(f"runs/{Path(word).name}" if Path(word).is_absolute() else word)
    return shlex.join(words)


@bench_app.command()
def loss(
    device: Device = None,
    shapes: Annotated[
        list[str] | None, typer.Option("--shape", help="N x K, as in 8192x1000; may be repeated.")
    ] = None,
    dtypes: Annotated[list[str] | None, typer.Option("--dtype", help="fp32 or bf16; may be repeated.")] = None,
    rounds: Rounds = 9,
    compiled: Annotated[bool, typer.Option(help="Also time cross-entropy under torch.compile.")] = True,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Time PC-LC against eager and compiled cross-entropy and against the naive formula, forward + backward.

    Example: `pclc bench loss --device cpu --shape 8192x1000 --dtype fp32`
    """
    import pclc
    from pclc.bench.loss import DTYPES, SHAPES, bench_loss

    for name in dtypes or []:
        if name not in DTYPES:
            raise ValueError(f"Expected --dtype to be one of {', '.join(DTYPES)}, but got {name!r}.")
    result = bench_loss(
        pclc.Execution(device=device).torch_device,
        [_shape(text) for text in shapes] if shapes else SHAPES,
        dtypes or tuple(DTYPES),
        rounds,
        compiled,
        report=lambda row: typer.echo(f"{row['N']} x {row['K']} {row['dtype']} {row['rows']}: done", err=True),
    )
    _finish(result, as_json, save)


@bench_app.command()
def train(
    dataset: Dataset = "digits",
    model: Model = None,
    losses: Annotated[
        list[str] | None,
        typer.Option("--loss", help="By default ce and pc-lc; --adversarial pc is timed with and without PC."),
    ] = None,
    batch_size: Annotated[int | None, typer.Option(help="Examples a step.")] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs to take the median of.")] = 5,
    plain: Annotated[bool, typer.Option(help="Also time the plain loop, which cannot train adversarially.")] = True,
    adversarial: Annotated[str | None, typer.Option(help="A recipe of `pclc train --adversarial`.")] = None,
    workers: Annotated[int, typer.Option(min=0, help="Workers of the plain loop's DataLoader.")] = 0,
    root: Root = None,
    device: Device = None,
    precision: Annotated[str, typer.Option(help="auto, fp32, tf32, bf16.")] = "auto",
    compile: Annotated[bool | None, typer.Option(help="torch.compile; by default on CUDA.")] = None,  # noqa: A002
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Time whole epochs, with shuffling and augmentation, against the training loop that everybody writes.

    Examples: `pclc bench train mnist --epochs 10`, `pclc bench train cifar10 --adversarial pc`
    """
    import pclc
    from pclc.bench.train import bench_train
    from pclc.training import PRESETS, adversarial_config, adversarial_preset, paper_config

    data = pclc.load_dataset(dataset, "train", root)
    changes: dict[str, Any] = {"batch_size": batch_size} if batch_size else {}
    if adversarial:  # with the optimizer and the averaging that go with it
        config = adversarial_config(dataset, adversarial_preset(adversarial, validate_every=epochs + 1), **changes)
    else:
        config = paper_config(dataset, **changes)
    execution = pclc.Execution(device=device, precision=precision)  # type: ignore[arg-type]
    on_cuda = execution.torch_device.type == "cuda"  # where a real run is long enough for it to pay
    execution = replace(execution, compile=on_cuda if compile is None else compile)
    result = bench_train(
        data,
        model or PRESETS[dataset].model,
        config,
        execution,
        losses,
        epochs,
        plain and not adversarial,
        workers,
        report=lambda row: typer.echo(f"{row['variant']}: {row['img/s']:,.0f} img/s", err=True),
    )
    _finish(result, as_json, save)


@bench_app.command()
def accuracy(
    dataset: Dataset = "digits",
    loss: Annotated[str, typer.Option(help="ce, gce, cot, pc, pc-lc, pc-lc-authors.")] = "pc-lc",
    model: Model = None,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds.")] = 3,
    precisions: Annotated[
        list[str] | None, typer.Option("--precision", help="fp32, tf32, bf16; may be repeated.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Epochs of each phase; by default the paper's.")] = None,
    root: Root = None,
    device: Device = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Measure the clean accuracy of the paper's protocol over seeds and precisions.

    Example: `pclc bench accuracy mnist --seeds 3 --precision bf16 --precision fp32`
    """
    import pclc
    from pclc.bench.accuracy import bench_accuracy
    from pclc.bench.result import BenchResult
    from pclc.training import paper_config

    changes = {"epochs": epochs, "warm_up_epochs": epochs} if epochs else {}

    def report(result: BenchResult) -> None:
        _keep(result, save)
        for row in result.rows:
            typer.echo(f"{row['data']} {row['loss']} {row['precision']}: {row['accuracy %']}", err=True)

    result = bench_accuracy(
        pclc.load_dataset(dataset, "train", root),
        pclc.load_dataset(dataset, "test", root),
        [paper_config(dataset, loss=loss, seed=seed, **changes) for seed in range(seeds)],
        [pclc.Execution(device=device, precision=name) for name in precisions or ["auto"]],  # type: ignore[arg-type]
        model,
        report,
    )
    _finish(result, as_json, save)


@bench_app.command()
def attack(
    run: Run,
    attack: Annotated[str, typer.Option(help="PGD or AutoAttack, which the peers have too, or any other.")] = (
        "pgd(eps=0.1, alpha=0.01, steps=40)"
    ),
    examples: Examples = 1000,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time, for all variants.")] = 250,
    rounds: Rounds = 3,
    compiled: Compiled = True,
    root: Root = None,
    device: Device = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Time an attack against the same attack in every other library that is installed (`make peers`).

    Examples: `pclc bench attack runs/mnist-lenet5-ce-0 --attack 'pgd(eps=0.3, alpha=0.01, steps=40)'`,
    `pclc bench attack runs/robust --attack 'autoattack(eps=8/255)' --examples 1000 --batch-size 1000`
    """
    from pclc.attacks import parse_attack
    from pclc.bench.attack import bench_attack
    from pclc.bench.result import BenchResult

    wanted, (config, model, x, y) = parse_attack(attack), _trained(run, root, device, examples)

    def report(result: BenchResult, variant: str) -> None:
        _keep(result, save, [run])
        row = next(row for row in result.rows if row["variant"] == variant)
        typer.echo(f"{variant}: run {row['runs']}, {row['ms']:.1f} ms (cold {row['cold ms']:.1f})", err=True)

    name = config["dataset"]["name"]
    _finish(bench_attack(model, x, y, wanted, name, batch_size, rounds, compiled, report), as_json, save, [run])


@bench_app.command()
def passes(
    networks: Annotated[
        list[str] | None, typer.Option("--network", help="May be repeated; by default four networks.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Images a pass; by default what suits the device.")
    ] = None,
    rounds: Rounds = 5,
    compiled: Compiled = True,
    device: Device = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Time logits and gradients as attacks compute them, against the plain model; needs no training and no data.

    Example: `pclc bench passes --network vgg13 --device cpu --batch-size 50`
    """
    import pclc
    from pclc.bench.passes import NETWORKS, bench_passes

    def report(row: dict[str, Any]) -> None:
        typer.echo(f"{row['network']}, {row['pass']}, {row['variant']}: {row['img/s']:,.0f} img/s", err=True)

    execution = pclc.Execution(device=device, batch_size=batch_size)
    _finish(bench_passes(networks or NETWORKS, execution, rounds, compiled, report), as_json, save)


@bench_app.command()
def robustness(
    runs: Annotated[list[Path], typer.Argument(help="Run directories of trained models.")],
    attacks: Annotated[list[str], typer.Option("--attack", help="An attack; may be repeated.")],
    examples: Annotated[int | None, typer.Option(min=1, help="Test images, from the first on; by default all.")] = None,
    root: Root = None,
    device: Device = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Measure what trained models keep under attack, for the page of figures; `pclc evaluate` says more about one.

    Example: `pclc bench robustness runs/madry --attack 'pgd(eps=8/255, alpha=2/255, steps=50, objective="margin")'`
    """
    import pclc
    from pclc.bench.robustness import bench_robustness

    result = bench_robustness(
        runs,
        [pclc.load_dataset(pclc.RunDirectory(run).config["dataset"]["name"], "test", root) for run in runs],
        attacks,
        pclc.Execution(device=device),
        examples,
        report=lambda row: typer.echo(f"{row['training']}: {row['attack']} {row['accuracy %']:.2f}", err=True),
    )
    _finish(result, as_json, save, runs)


@bench_app.command()
def parity(
    run: Run,
    eps: Annotated[str, typer.Option(help="Radius of the ball: 0.1, 8/255.")] = "8/255",
    norm: Annotated[str, typer.Option(help="Linf or L2.")] = "Linf",
    components: Annotated[
        list[str] | None,
        typer.Option("--component", help="apgd-ce, apgd-t, fab-t, square, autoattack (the whole); by default all."),
    ] = None,
    examples: Examples = 1000,
    seeds: Annotated[int, typer.Option(min=1, help="Attack seeds, averaged over.")] = 3,
    batch_size: Annotated[int, typer.Option(min=1, help="Images at a time in pyautoattack.")] = 250,
    root: Root = None,
    device: Device = None,
    save: Save = None,
    as_json: AsJson = False,
) -> None:
    """Compare AutoAttack and its components with pyautoattack's: is any of ours weaker? (`make peers`)

    If it is killed, the same command with the same --save continues after the last component that was finished.

    Example: `pclc bench parity runs/mnist-lenet5-ce-0 --eps 0.1 --component apgd-ce --component apgd-t`
    """
    from pclc.attacks import AutoAttack, parse_attack
    from pclc.bench.parity import bench_parity
    from pclc.bench.result import BenchResult
    from pclc.bench.training_words import training_words

    attack = parse_attack(f'autoattack(eps={eps}, norm="{norm}")')
    assert isinstance(attack, AutoAttack)
    config, model, x, y = _trained(run, root, device, examples)
    title = f"{config['dataset']['name']}, {config['model']['name']}, {training_words(config['train'])}"
    before = BenchResult.load(save) if save and save.exists() else None

    def report(result: BenchResult) -> None:
        _keep(result, save, [run])
        row = result.rows[-1]
        typer.echo(f"{row['attack']}: {row['pclc %']:.2f} against {row['pyautoattack %']:.2f}", err=True)

    result = bench_parity(model, x, y, attack, title, components or (), seeds, batch_size, report, before)
    _finish(result, as_json, save, [run])


def _trained(run: Path, root: Path | None, device: str | None, examples: int) -> tuple[Any, Any, Any, Any]:
    """The configuration of a run, its model, and the first test images with their classes."""
    import pclc

    config, place = pclc.RunDirectory(run).config, pclc.Execution(device=device).torch_device
    test = pclc.load_dataset(config["dataset"]["name"], "test", root)
    x, y = (test.images[:examples].float() / 255).to(place), test.labels[:examples].to(place)
    return config, pclc.load_model(run, str(place)), x, y


@bench_app.command()
def zoo(
    mode: Annotated[str, typer.Option(help="Of the audits: quick, standard or full.")] = "standard",
    seeds: Annotated[int, typer.Option(min=1, help="Models of each kind.")] = 3,
    workers: Annotated[int, typer.Option(min=1, help="Processes.")] = 2,
    families: Annotated[list[str] | None, typer.Option("--family", help="Only this family; may be repeated.")] = None,
    save: Save = None,
    page: Annotated[Path | None, typer.Option(help="A page whose section on error rates is rewritten.")] = None,
    as_json: AsJson = False,
) -> None:
    """Measure how often an audit's verdict is wrong, on hollow and honest models of the digits.

    Example: `pclc bench zoo --save results/zoo.json --page docs/audit.md`
    """
    from pclc.bench.result import BenchResult
    from pclc.bench.zoo import bench_zoo
    from pclc.bench.zoo_page import error_rates, write_section

    def report(result: BenchResult) -> None:
        _keep(result, save)
        row = result.rows[-1]
        typer.echo(f"{row['model']}: the claim is {row['the claim is']}, {row['verdict']}", err=True)

    result = _finish(bench_zoo(mode, seeds, workers, families or (), report), as_json, save)  # type: ignore[arg-type]
    if not as_json:
        print_table(error_rates(result.rows))
    if page:
        write_section(result, page)


@bench_app.command()
def audits(
    run: Annotated[
        Path | None, typer.Argument(help="Run directory whose audit is kept; may be left out with --page.")
    ] = None,
    audit: Annotated[Path | None, typer.Option(help="Folder of its audit.json; by default the run directory.")] = None,
    transfer_from: Annotated[
        Path | None, typer.Option(help="Run directory that the audit made transfers from, if it did.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="The file to keep it in, under --results.")] = None,
    results: Annotated[Path, typer.Option(help="Folder with the kept audits.")] = Path("results/audits"),
    pages: Annotated[
        list[Path] | None,
        typer.Option("--page", help="A page whose section on audits is rewritten; may be repeated."),
    ] = None,
) -> None:
    """Keep what an audit found, with the commands that repeat it, and rewrite the section on audits of a page.

    Examples: `pclc bench audits runs/x --save results/audits/x.json`, `pclc bench audits --page docs/audit.md`
    """
    from pclc.bench.audits import record
    from pclc.bench.audits_page import sentence, write_audits

    if (run is None) != (save is None) or (run is None and not pages):
        raise ValueError("Expected a run directory with --save, or --page, or both.")
    if run is not None and save is not None:
        kept = record(run, audit or run, transfer_from)
        kept.save(save)
        typer.echo(f"{save}: {sentence(kept)}")
    for page in pages or []:
        typer.echo(f"{page}: {write_audits(results, page)} audits")


@bench_app.command()
def page(
    results: Annotated[Path, typer.Option(help="Folder with the saved results.")] = Path("results/bench"),
    out: Annotated[Path, typer.Option(help="The page to write.")] = Path("docs/performance.md"),
) -> None:
    """Write the page of figures from saved results.

    Example: `pclc bench page --results results/bench --out docs/performance.md`
    """
    from pclc.bench.page import write_page

    typer.echo(f"{out}: {write_page(results, out)} results")


def _shape(text: str) -> tuple[int, int]:
    try:
        N, K = (int(part) for part in text.lower().split("x"))
    except ValueError:
        raise ValueError(f"Expected --shape as N x K, for example 8192x1000, but got {text!r}.") from None
    return N, K
