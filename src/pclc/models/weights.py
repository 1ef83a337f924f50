"""Weights in files: safetensors with the configuration beside them, and the state_dicts of others."""

import json
import os
from collections.abc import Iterable, Mapping
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
_PARALLEL = "module."  # put before names by DataParallel and DistributedDataParallel
_CONTAINERS = ("state_dict", "model_state_dict", "model")


def save_model(model: nn.Module, directory: str | os.PathLike[str]) -> None:
    """Write `model.safetensors` and `model.json` into `directory`, each whole or not at all.

    Wrappers (torch.compile, DataParallel, DistributedDataParallel) leave no trace: the files are those of the plain
    model. `model` must come from `create_model` or `load_model`, which note its configuration.
    """
    from safetensors.torch import save

    model = unwrap(model)
    document = {"format": FORMAT, "version": VERSION, "model": asdict(config_of(model))}
    tensors = {}
    for name, value in _core(model).state_dict().items():
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

    `path` is a `.safetensors` file, or a `.pt` or `.pth` file that holds tensors only (`torch.load` with
    `weights_only=True`: code inside is refused, not run), perhaps under a key `state_dict`, `model_state_dict` or
    `model`. Prefixes of wrappers (`module.`, `_orig_mod.`) are taken off.
    """
    path = Path(path)
    core = _core(unwrap(model))
    expected = {name.replace(_COMPILED, ""): (name, value) for name, value in core.state_dict().items()}
    found: dict[str, Tensor] = {}
    for name, value in _read_state_dict(path).items():
        plain = _plain_name(name, expected)
        if plain in found:
            raise ValueError(f"The weights in {path} hold {plain!r} twice, with and without a wrapper's prefix.")
        found[plain] = value

    reshaped = [
        f"{name} {tuple(found[name].shape)} instead of {tuple(value.shape)}"
        for name, (_, value) in expected.items()
        if name in found and found[name].shape != value.shape
    ]
    problems = [
        _count("missing", [name for name in expected if name not in found]),
        _count("unexpected", [name for name in found if name not in expected]),
        _count("of another shape", reshaped),
    ]
    if any(problems):
        raise ValueError(f"The weights in {path} do not fit the model: {'; '.join(filter(None, problems))}.")
    core.load_state_dict({name: found[plain] for plain, (name, _) in expected.items()})


def unwrap(model: nn.Module) -> nn.Module:
    """Return the plain model inside torch.compile, DataParallel and DistributedDataParallel."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif "_orig_mod" in model._modules:
            model = model.get_submodule("_orig_mod")
        else:
            return model


def _core(model: nn.Module) -> nn.Module:
    """Leave the normalisation out: it is configuration, and the names in the file are those of the model itself."""
    return model.model if isinstance(model, Normalized) else model


def _plain_name(name: str, expected: Mapping[str, object]) -> str:
    """Take wrappers' prefixes off, but not a `module.` that the model itself has."""
    name = name.replace(_COMPILED, "")
    while name not in expected and name.startswith(_PARALLEL):
        name = name.removeprefix(_PARALLEL)
    return name


def _count(kind: str, names: Iterable[str], shown: int = 3) -> str:
    names = list(names)
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{len(names)} {kind} ({', '.join(names[:shown])}{more})" if names else ""


def _read_state_dict(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"Expected weights in {path}, but there is no such file.")
    if path.suffix == ".safetensors":
        return _read_safetensors(path)
    if path.suffix in (".pt", ".pth"):
        return _read_torch(path)
    raise ValueError(f"Expected weights in a .safetensors, .pt or .pth file, but got {path}.")


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(path)
    except SafetensorError as error:
        raise ValueError(f"Expected {path} to be a safetensors file, but it cannot be read: {error}.") from error


def _read_torch(path: Path) -> Mapping[str, Tensor]:
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file fails in the unpickler, the archive or the tensors alike
        raise ValueError(
            f"Expected {path} to hold a state_dict of tensors and nothing else, but torch.load with weights_only=True "
            f"refuses it. Save model.state_dict() instead of the model."
        ) from error
    while isinstance(content, Mapping):
        inner = next((content[key] for key in _CONTAINERS if isinstance(content.get(key), Mapping)), None)
        if inner is None:
            break
        content = inner
    if not isinstance(content, Mapping):
        raise ValueError(f"Expected {path} to hold a state_dict, but got a {type(content).__name__}.")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, Tensor):
            raise ValueError(
                f"Expected {path} to hold a state_dict of tensors, but {name!r} is of type {type(value).__name__}."
            )
    return content


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
