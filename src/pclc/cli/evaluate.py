"""``pclc evaluate``: the accuracy that is left under attack."""

import json
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pclc.cli.headings import on_machine, on_model
from pclc.cli.output import interruptible, print_table, what_is_found

if TYPE_CHECKING:
    from pclc import Dataset, Execution
    from pclc.attacks import Attack
    from pclc.cli.sources import Source


def evaluate(
    run: Annotated[Path | None, typer.Argument(help="Run directory of pclc train.")] = None,
    attack: Annotated[
        list[str] | None, typer.Option(help="Such as 'pgd(eps=0.3, alpha=0.01, steps=40)'; may be given again.")
    ] = None,
    eps: Annotated[
        list[str] | None, typer.Option(help="Radius in place of each attack's own, such as 8/255; may be given again.")
    ] = None,
    examples: Annotated[int | None, typer.Option(help="Use only the first N; by default all.")] = None,
    transfer_from: Annotated[
        Path | None, typer.Option(help="Black-box: make the examples on the model of this run directory.")
    ] = None,
    eight_bit: Annotated[bool, typer.Option("--eight-bit", help="Round examples to k/255 before they count.")] = False,
    keep_examples: Annotated[
        bool, typer.Option("--keep-examples", help="Write the adversarial examples as safetensors.")
    ] = False,
    model: Annotated[str | None, on_model(help="A network, or package.module:factory, instead of a run.")] = None,
    weights: Annotated[Path | None, on_model(help="With --model: a .safetensors or torch.save file.")] = None,
    robustbench: Annotated[
        str | None, on_model(help="A name in RobustBench's zoo; --weights is the folder of its checkpoints.")
    ] = None,
    threat_model: Annotated[str, on_model(help="With --robustbench: Linf or L2.")] = "Linf",
    dataset: Annotated[str | None, on_model(help="Data set; by default the one of the run.")] = None,
    split: Annotated[str, on_model(help="test or train.")] = "test",
    trust_factory: Annotated[
        bool, on_model("--trust-factory", help="Import the package.module:factory that a run directory names.")
    ] = False,
    seed: Annotated[int, typer.Option(help="Seed of the attacks' random numbers.")] = 0,
    chunk: Annotated[int | None, on_machine(help="Save results after every N examples.")] = None,
    batch_size: Annotated[int | None, on_machine(help="Examples per pass.")] = None,
    root: Annotated[Path | None, on_model(help="Folder with the data sets.")] = None,
    out: Annotated[Path | None, on_machine(help="Folder for evaluation.json; by default the run directory.")] = None,
    device: Annotated[str | None, on_machine(help="cpu, cuda, cuda:1, ...")] = None,
    precision: Annotated[str, on_machine(help="Precision of crafting: auto, fp32, tf32, bf16.")] = "auto",
    compiled: Annotated[
        bool, on_machine("--compile", help="Compile the model; pays in long attacks on a GPU.")
    ] = False,
    as_json: Annotated[bool, on_machine("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Measure accuracy under each attack and in the worst case, with exact 95 % intervals.

    If it is killed, the same command continues where it stopped. Over several GPUs or hosts:
    `torchrun --nproc-per-node 8 -m pclc evaluate RUN ...`.

    Examples:

    - `pclc evaluate runs/x --attack 'pgd(eps=0.3, alpha=0.01, steps=40)'`

    - `pclc evaluate runs/x --attack 'fgsm(eps=0.1)' --eps 0.1 --eps 0.2 --eps 0.3 --transfer-from runs/y`

    - `pclc evaluate --model my.package:network --weights net.pt --dataset cifar10 --attack 'fgsm(eps=8/255)'
      --out results`
    """
    import pclc
    from pclc.attacks import parse_attack
    from pclc.cli.sources import Source
    from pclc.cli.train import _number
    from pclc.evaluation import SetupWarning
    from pclc.evaluation.document import to_document
    from pclc.evaluation.state import FOLDER

    if keep_examples and run is None and out is None:
        raise ValueError("Expected --keep-examples with --out, the folder to keep them in, but got none.")
    source = Source(run, model, robustbench, weights, threat_model, trust_factory)
    substitute = Source(transfer_from, trust_factory=trust_factory) if transfer_from else None
    execution = local_execution(device, precision, batch_size, compiled)
    attacks = [parse_attack(text) for text in attack or []]
    radii = [_number("--eps", text) for text in eps] if eps else None
    if radii and not attack:
        raise ValueError("Expected --eps with --attack, such as 'fgsm(eps=0.1)', but got no attack.")
    if transfer_from and not attack:
        raise ValueError("Expected --transfer-from with --attack, such as 'fgsm(eps=0.1)', but got no attack.")
    data = named_data(dataset or source.dataset, split, root)
    network = source.load(data, execution)
    if substitute is not None:
        attacks = _transfers(attacks, substitute, data, execution)
    if examples is not None and examples < 1:
        raise ValueError(f"Expected --examples to be at least 1, but got {examples}.")
    n = min(examples or len(data), len(data))
    warnings.simplefilter("ignore", SetupWarning)  # they are in the notes below the table, but for what is replaced
    warnings.filterwarnings("default", r"The evaluation in .* had other attacks", SetupWarning)
    with interruptible(lambda: what_is_found(out or run, FOLDER)):
        result = pclc.evaluate(
            network,
            data.images[:n].float() / 255,
            data.labels[:n],
            attacks,
            eps=radii,
            seed=seed,
            eight_bit=eight_bit,
            keep_examples=keep_examples,
            out=out or run,
            chunk=chunk,
            execution=execution,
            progress=True,
            model_name=source.name,
            data_name=f"{data.name}, {split}",
        )
    if os.environ.get("RANK", "0") != "0":
        return
    if as_json:
        typer.echo(json.dumps(to_document(result), indent=1))
        return
    print_table(result.rows(), title=result.sentence())
    for note in result.notes:
        typer.echo(note)


def local_execution(
    device: str | None, precision: str = "auto", batch_size: int | None = None, compiled: bool = False
) -> "Execution":
    """How this process runs."""
    import pclc

    # Crafting is in TF32 or float32 unless bf16 is asked for, and the model's layout goes with it.
    execution = pclc.Execution(device=device, precision=precision, compile=compiled, batch_size=batch_size)  # type: ignore[arg-type]
    return execution.for_attacks(execution.torch_device)


def named_data(name: str | None, split: str, root: Path | None) -> "Dataset":
    """A split of the data set of that name, which somebody has to say."""
    import pclc

    if name is None:
        raise ValueError("Expected --dataset, because the model does not say what it was trained on, but got none.")
    return pclc.load_dataset(name, split, root)


def _transfers(attacks: "list[Attack]", source: "Source", data: "Dataset", execution: "Execution") -> "list[Attack]":
    from pclc.attacks import Transfer

    substitute = source.load(data, execution)
    substitute.__name__ = Path(source.name).name  # type: ignore[assignment]  # what a transfer calls it in its text
    return [Transfer(attack, substitute) for attack in attacks]
