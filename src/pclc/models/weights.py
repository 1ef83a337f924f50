"""Weights in files: safetensors with the configuration beside them, and the state_dicts of others."""

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pclc.files import write_atomically
from pclc.models.config import ModelConfig, config_of
from pclc.models.normalize import Normalized
from pclc.models.registry import create_model, model_names

WEIGHTS_FILE = "model.safetensors"
CONFIG_FILE = "model.json"
FORMAT = "pclc-model"
VERSION = 1

_COMPILED = "_orig_mod."  # put into names by torch.compile, at any level
_AVERAGED = "n_averaged"  # put beside them by torch.optim.swa_utils.AveragedModel


def save_model(model: nn.Module, directory: str | os.PathLike[str]) -> None:
    """Write `model.safetensors` and `model.json` into `directory`, each whole or not at all.

    Wrappers (torch.compile, DataParallel, DistributedDataParallel) leave no trace: the files are those of the plain
    model. `model` must come from `create_model` or `load_model`, which note its configuration.
    """
    from safetensors.torch import save

    model = unwrap(model)
    document = {"format": FORMAT, "version": VERSION, "model": asdict(config_of(model))}
    # Without the normalisation, which is configuration: names in the file are those of the model itself.
    core = model.model if isinstance(model, Normalized) else model
    tensors = {}
    for name, value in core.state_dict().items():
        if not isinstance(value, Tensor):
            raise ValueError(
                f"Expected the state_dict to hold tensors only, but {name!r} is of type {type(value).__name__}."
            )
        # A copy of its own for each name: safetensors takes no shared storage, and no strides but the contiguous.
        tensors[name.replace(_COMPILED, "")] = value.detach().cpu().clone(memory_format=torch.contiguous_format)
    directory = Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / WEIGHTS_FILE, save(tensors))
    write_atomically(directory / CONFIG_FILE, (json.dumps(document, indent=2) + "\n").encode())


def load_model(
    directory: str | os.PathLike[str], device: str | torch.device = "cpu", *, trust_factory: bool = False
) -> nn.Module:
    """Rebuild the model that `save_model` wrote, in eval mode.

    A model from elsewhere (`package.module:factory`) is rebuilt by importing that module, which runs its code. A file
    could name any module, so this is done only with `trust_factory=True`. The global random generator is left alone.
    """
    directory = Path(directory)
    config = _read_config(directory / CONFIG_FILE)
    if config.name not in model_names() and not trust_factory:
        raise ValueError(
            f"The model in {directory} is made by {config.name!r}, which is not a model of this package. "
            "Pass trust_factory=True (--trust-factory on the command line) to import it, if you trust the file."
        )
    with torch.random.fork_rng(devices=[]):
        model = create_model(**{field.name: getattr(config, field.name) for field in fields(config)})
    load_weights(model, directory / WEIGHTS_FILE)
    return model.to(device).eval()


def load_weights(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load a state_dict, ours or that of others, into `model`; every name and every shape has to fit.

    `path` is a `.safetensors` file, or one that torch wrote (`torch.load` with `weights_only=True`: code inside is
    refused, not run). There the state_dict may lie under keys, such as `state_dict` or `model`; where several fit,
    such as the weights and their average, none is chosen. A prefix that all names share is ignored, in the file
    (`module.`, `model.`) and in the model, which may be a `Sequential` of a `Normalize` and the network.
    """
    path, model = Path(path), unwrap(model)
    own = model.state_dict()
    expected = _plain(own)
    names = dict(zip(expected, own, strict=True))
    found = {key: _plain(state, expected) for key, state in _read_state_dicts(path).items()}
    problems = {key: _problems(state, expected) for key, state in found.items()}
    fitting = [key for key in found if not problems[key]]
    if len(fitting) > 1:
        raise ValueError(
            f"Expected one set of weights in {path}, but got several that fit the model, under {', '.join(fitting)}. "
            "Save the right one in a file of its own."
        )
    if not fitting:
        nearest = max(found, key=lambda key: len(found[key].keys() & expected.keys()))
        raise ValueError(f"The weights in {path} do not fit the model: {problems[nearest]}.")
    model.load_state_dict({names[plain]: value for plain, value in found[fitting[0]].items()})


def unwrap(model: nn.Module) -> nn.Module:
    """Return the plain model inside torch.compile, DataParallel and DistributedDataParallel."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model.get_submodule("_orig_mod")
        else:
            return model


def _plain(state: Mapping[str, Tensor], expected: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Remove what wrappers put into names: a prefix that all share, in a file while none of its names is expected."""
    state = {name.replace(_COMPILED, ""): value for name, value in state.items()}
    if expected is not None and _AVERAGED not in expected:
        state.pop(_AVERAGED, None)
    while state and not state.keys() & (expected or {}).keys():
        prefix = next(iter(state)).partition(".")[0] + "."
        if not all(name.startswith(prefix) for name in state):
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
    return state


def _problems(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> str:
    reshaped = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(value.shape)}"
        for name, value in expected.items()
        if name in found and found[name].shape != value.shape
    ]
    counts = [
        _count("missing", [name for name in expected if name not in found]),
        _count("unexpected", [name for name in found if name not in expected]),
        _count("of another shape", reshaped),
    ]
    return "; ".join(filter(None, counts))


def _count(kind: str, names: Iterable[str], shown: int = 3) -> str:
    names = list(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{len(names)} {kind} ({', '.join(names[:shown])}{more})" if names else ""


def _read_state_dicts(path: Path) -> dict[str, Mapping[str, Tensor]]:
    """Each state_dict in a file, by the keys that lead to it."""
    if not path.is_file():
        raise FileNotFoundError(f"Expected weights in {path}, but there is no such file.")
    content = _read_safetensors(path) if path.suffix == ".safetensors" else _read_torch(path)
    found = dict(_state_dicts(content))
    if not found:
        odd = next((name for name, value in content.items() if not isinstance(value, Tensor)), None)
        why = "there is none" if odd is None else f"{odd!r} is of type {type(content[odd]).__name__}"
        raise ValueError(f"Expected {path} to hold a state_dict of tensors, but {why}.")
    return found


def _state_dicts(content: object, key: str = "") -> Iterator[tuple[str, Mapping[str, Tensor]]]:
    if not isinstance(content, Mapping):
        return
    if content and all(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items()):
        yield key, content
    for name, value in content.items():
        yield from _state_dicts(value, f"{key}[{name!r}]")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"Expected {path} to be a safetensors file, but it cannot be read: {error}.") from error


def _read_torch(path: Path) -> Mapping[Any, Any]:
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file fails in the unpickler, the archive or the tensors alike
        raise ValueError(
            f"Expected {path} to hold a state_dict, but torch.load with weights_only=True refuses it{_culprits(path)}. "
            "Save model.state_dict() alone."
        ) from error
    if not isinstance(content, Mapping):
        raise ValueError(f"Expected {path} to hold a state_dict, but got a {type(content).__name__}.")
    return content


def _culprits(path: Path) -> str:
    """The globals that a file would import and that might run; they are read from its bytes."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # not a file of torch's, or one in its old format
        return ""
    return f", because it also holds {', '.join(sorted(names)[:3])}" if names else ""


def _read_config(path: Path) -> ModelConfig:
    if not path.is_file():
        raise FileNotFoundError(f"Expected the configuration of a model in {path}, but there is no such file.")
    try:
        document = json.loads(path.read_bytes())
    except ValueError as error:
        raise ValueError(f"Expected {path} to be JSON, but it cannot be read: {error}.") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ValueError(f"Expected {path} to be written by save_model, but it has no format {FORMAT!r}.")
    if document.get("version") != VERSION:
        raise ValueError(f"Expected {path} to be of version {VERSION}, but got {document.get('version')!r}.")
    config = document.get("model")
    names = {field.name for field in fields(ModelConfig)}
    if not isinstance(config, dict) or config.keys() != names:
        raise ValueError(f"Expected `model` in {path} to have {', '.join(sorted(names))}, but got {config!r}.")
    return ModelConfig(**config)
