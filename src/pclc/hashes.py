"""Short names for models, data and settings: equal contents, equal hash."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pclc.models.weights import unwrap

_DIGITS = 16
_OF_ALL_MODULES = frozenset(vars(nn.Module()))


def tensor_hash(*tensors: Tensor) -> str:
    """Of shapes, types and contents, wherever the tensors live.

    Example:
        >>> tensor_hash(torch.zeros(2)) == tensor_hash(torch.zeros(2)), tensor_hash(torch.zeros(2), torch.ones(1))
        (True, '962d06528615dc06')
    """
    return _digest((f"{i}", tensor) for i, tensor in enumerate(tensors))


def model_hash(model: object) -> str | None:
    """Of all parameters and buffers by name, wrappers left out; None for a plain function, which has none.

    Buffers that are not saved count too: the numbers of a normalisation layer are part of what the model computes.
    """
    if not isinstance(model, nn.Module):
        return None
    plain = unwrap(model)
    named = {**dict(plain.named_parameters()), **dict(plain.named_buffers())}
    return _digest((name.replace("_orig_mod.", ""), named[name]) for name in sorted(named))


def architecture_hash(model: object) -> str:
    """Of modules and their settings, wrappers left out, and not of weights.

    Settings are what the model prints and the plain values among the attributes of its modules, such as a temperature.

    Example:
        >>> first, second = nn.Identity(), nn.Identity()
        >>> second.temperature = 2.0
        >>> architecture_hash(first) == architecture_hash(second)
        False
    """
    if not isinstance(model, nn.Module):
        return settings_hash(None)
    plain = unwrap(model)
    settings = {name: _settings(module) for name, module in plain.named_modules()}
    return settings_hash([repr(plain), settings])


def _settings(module: nn.Module) -> dict[str, str]:
    """The attributes that are plain values; tensors among them are neither parameters nor buffers."""
    own = {name: value for name, value in vars(module).items() if name not in _OF_ALL_MODULES}
    plain = {name: repr(value) for name, value in own.items() if _is_plain(value)}
    return plain | {name: tensor_hash(value) for name, value in own.items() if isinstance(value, Tensor)}


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def settings_hash(settings: Any) -> str:
    """Of what can be written as JSON."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _digest(named: Iterator[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in named:
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)};".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:_DIGITS]
