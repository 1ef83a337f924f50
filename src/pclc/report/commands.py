"""The commands that repeat a run; each is checked against what the run says before it is shown."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from pclc.attacks.attack import number_text
from pclc.data.registry import dataset_names
from pclc.evaluation import Evaluation
from pclc.report.runs import Run
from pclc.report.series import read_attack
from pclc.training import (
    ADVERSARIAL_PRESETS,
    PRESETS,
    RunDirectory,
    TrainConfig,
    adversarial_config,
    adversarial_preset,
    paper_config,
)

_WIDE = 110
_TRAINING = tuple(field.name for field in fields(TrainConfig) if field.name != "adversarial")
_CRAFTING = (
    "eps", "norm", "alpha", "steps", "objective", "beta", "clean_share", "kl_weight", "ramp_epochs", "margin",
    "logit_weight",
)  # fmt: skip


def commands_of(run: Run) -> list[str]:
    """The commands that repeat a run, in order; a comment stands for what no command can repeat."""
    found = []
    if run.config is not None:
        found.append(_train(run, run.config["run"]))
    if run.evaluation is not None and run.evaluation.outcomes:
        found += _evaluate(run, run.evaluation)
    if run.audit is not None:
        found.append(_audit(run, run.audit))
    if run.inspection is not None:
        found.append(_line(["pclc", "report", str(run.path), "--inspect", run.inspection["attack"]]))
    return found


def training_command(run: Path) -> str:
    """The command that trains the model of a run directory again, in `runs/`, wherever the directory is."""
    directory = RunDirectory(run)
    return training_command_of(run.resolve().name, directory.config, directory.result["device"])


def training_command_of(name: str, config: dict[str, Any], device: str) -> str:
    """The same from what is known of a run directory."""
    return _train(Run(name, Path("runs") / name, training={"device": device}), config)


def _train(run: Run, content: dict[str, Any]) -> str:
    config, dataset, model = TrainConfig.from_dict(content["train"]), content["dataset"]["name"], content["model"]
    if "hash" in content["dataset"]:  # images that are not those the name stands for
        return _one_line(
            f"# Training: pclc.train on images of your own, {dataset} (hash {content['dataset']['hash']})."
        )
    options = _training_options(dataset, config) if dataset in PRESETS else None
    if options is None or model.get("normalize") is not None:
        return "# Training: pclc.train with the configuration in config.json, which `pclc train` has no options for."
    words = ["pclc", "train", dataset, *options, "--model", model["name"], "--precision", content["precision"]]
    device = (run.training or {}).get("device")
    return _line([*words, *(["--device", device] if device == "cpu" else []), "--out", str(run.path)])


def _training_options(dataset: str, config: TrainConfig) -> list[str] | None:
    """The fewest options that give exactly this configuration; None where there are none."""
    recipe = config.adversarial
    names = [name for name, preset in ADVERSARIAL_PRESETS.items() if recipe and preset.method == recipe.method]
    found = (_options_from(dataset, config, name) for name in names or (None,))
    return min((options for options in found if options is not None), key=len, default=None)


def _options_from(dataset: str, config: TrainConfig, name: str | None) -> list[str] | None:
    """The options beside `--adversarial NAME` that give exactly this configuration; None where there are none."""
    crafting: dict[str, Any] = {}
    if name is not None:
        preset, recipe = adversarial_config(dataset, adversarial_preset(name)).adversarial, config.adversarial
        crafting = {key: getattr(recipe, key) for key in _CRAFTING if getattr(recipe, key) != getattr(preset, key)}
    base = _as_the_command_does(dataset, name, crafting, {})
    if base is None:
        return None
    changes = {key: getattr(config, key) for key in _TRAINING if getattr(config, key) != getattr(base, key)}
    if {"epochs", "warm_up_epochs"} & changes.keys():  # the one changes the default of the other
        changes |= {"warm_up_epochs": config.warm_up_epochs, "epochs": config.epochs}
    if _as_the_command_does(dataset, name, crafting, changes) != config:
        return None
    shown = {("step_size" if key == "alpha" else key): _text(value) for key, value in crafting.items()}
    both = {**changes, "loss": config.loss, "seed": config.seed}
    return [
        *_options({"loss": both.pop("loss"), "seed": both.pop("seed")}),
        *(["--adversarial", name, *_options(shown)] if name else []),
        *_options({key: _text(value) for key, value in both.items()}),
    ]


def _as_the_command_does(
    dataset: str, name: str | None, crafting: dict[str, Any], changes: dict[str, Any]
) -> TrainConfig | None:
    try:
        if name is None:
            return paper_config(dataset, **changes)
        return adversarial_config(dataset, adversarial_preset(name, **crafting), **changes)
    except ValueError:
        return None


def _evaluate(run: Run, evaluation: Evaluation) -> list[str]:
    lines, texts = [], []
    for outcome in evaluation.outcomes:
        if outcome.substitute is not None:
            lines.append(
                f"# {outcome.attack}: with --transfer-from, a run whose model has the hash {outcome.substitute}."
            )
        elif read_attack(outcome.attack) is None:
            lines.append(f"# {outcome.attack}: a Python callable, which no command can name.")
        else:
            texts.append(outcome.attack)
    if not texts:
        return [_one_line(line) for line in lines]
    words = ["pclc", "evaluate", *_model(run)]
    if any(outcome.carried for outcome in evaluation.outcomes):
        # Only a grid of eps carries what was broken at a smaller one, and it has every attack at each.
        first = min(outcome.eps for outcome in evaluation.outcomes if outcome.eps is not None)
        some = [outcome.attack for outcome in evaluation.outcomes if outcome.eps in (first, None)]
        words += [word for text in some if text in texts for word in ("--attack", text)]
        radii = sorted({outcome.eps for outcome in evaluation.outcomes if outcome.eps is not None})
        words += [word for eps in radii for word in ("--eps", repr(eps))]
    else:
        words += [word for text in texts for word in ("--attack", text)]
    about, (dataset, _, split) = evaluation.conditions, evaluation.conditions.data.partition(", ")
    words += ["--dataset", dataset, *(["--split", split] if split else []), "--examples", str(evaluation.n)]
    words += ["--seed", str(evaluation.outcomes[0].seed), *(["--eight-bit"] if about.eight_bit else [])]
    words += ["--precision", about.precision, *(["--device", "cpu"] if about.device == "cpu" else [])]
    return [*(_one_line(line) for line in lines), _command(run, words, vars(about))]


def audit_options(audit: dict[str, Any]) -> list[str]:
    """What an audit was asked, of whatever model and data."""
    about, stated = audit["conditions"], audit["stated_claim"]
    words = ["--norm", about["norm"], "--eps", number_text(about["eps"])]
    words += [f"--{about['mode']}"] if about["mode"] != "standard" else []
    words += ["--examples", str(about["given"]), "--seed", str(about["seed"])]
    on_cpu = about["device"] == "cpu"
    words += ["--device", "cpu"] if on_cpu else []
    words += ["--precision", about["precision"]] if about["precision"] != ("fp32" if on_cpu else "tf32") else []
    return words + (["--claim", repr(stated)] if stated is not None else [])


def _audit(run: Run, audit: dict[str, Any]) -> str:
    about, words = audit["conditions"], ["pclc", "audit", *_model(run), *audit_options(audit)]
    trained = run.config["run"] if run.config is not None and run.holds_model else {}
    dataset, _, split = about["data"].partition(", ")
    words += ["--dataset", dataset] if dataset != trained.get("dataset", {}).get("name") else []
    words += ["--split", split] if split not in ("", "test") else []
    loss = about.get("loss")
    words += ["--loss", loss] if loss not in (None, trained.get("train", {}).get("loss")) else []
    return _command(run, words, about)


def _model(run: Run) -> list[str]:
    """What names the model in a command; where the folder has results alone, they are to be put there again."""
    return [str(run.path)] if run.holds_model else ["MODEL", "--out", str(run.path)]


def _command(run: Run, words: list[str], about: dict[str, Any]) -> str:
    """The command, or a comment with it that says what is missing in it."""
    missing = []
    if not run.holds_model:
        missing.append(
            f"in place of MODEL the run directory, or --model and --weights, of {about['model']} "
            f"(hash {about['model_hash']})"
        )
    if about["data"].partition(", ")[0] not in dataset_names():
        missing.append(f"--dataset for {about['data']} (hash {about['data_hash']})")
    if about.get("twin") is not None:
        missing.append(f"--transfer-from with a run whose model has the hash {about['twin']}")
    if not missing:
        return _line(words)
    # A comment cannot go on in the next line.
    return _one_line(f"# To be filled in ({'; '.join(missing)}): {shlex.join(words)}")


def _options(values: dict[str, Any]) -> list[str]:
    return [word for key, value in values.items() for word in (f"--{key.replace('_', '-')}", str(value))]


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(_text, value))
    return number_text(value) if isinstance(value, float) else str(value)


def _line(words: list[str]) -> str:
    """A command with each option on a line of its own where it is long; a shell reads it as one."""
    command = shlex.join(words)
    if len(command) <= _WIDE:
        return command
    first = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    lines, rest = [shlex.join(words[:first])], words[first:]
    for word in rest:
        if word.startswith("--") and (word in ("--attack", "--out") or len(lines[-1]) + len(word) > _WIDE - 20):
            lines.append(f"  {word}")
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(lines)


def _one_line(text: str) -> str:
    """A comment stays one, whatever names are in it."""
    return " ".join(text.split())
