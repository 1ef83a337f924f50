"""Short names for models, data and settings: equal contents, equal hash."""

import dis
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from inspect import unwrap as unwrapped
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor, nn

from pclc.models.weights import unwrap

_DIGITS = 16
# The last two are set by `torch.compile` and `Module.compile`.
_OF_ALL_MODULES = frozenset([*vars(nn.Module()), "_is_torch_compile", "_compiled_call_impl"])
# What code may compute with, beside functions.
_VALUES = (nn.Module, Tensor, np.ndarray, int, float, str, tuple, list, dict)
# Held by the functions that they decorate.
_MODES = torch.no_grad | torch.enable_grad | torch.set_grad_enabled | torch.inference_mode | torch.autocast


def tensor_hash(*tensors: Tensor) -> str:
    """Of shapes, types and contents, wherever the tensors live.

    Example:
        >>> tensor_hash(torch.zeros(2)) == tensor_hash(torch.zeros(2)), tensor_hash(torch.zeros(2), torch.ones(1))
        (True, '962d06528615dc06')
    """
    return _digest((f"{i}", tensor) for i, tensor in enumerate(tensors))


def model_hash(model: object) -> str | None:
    """Of all parameters and buffers by name, without wrappers; None for a plain function, which has none.

    Buffers that are not saved count too: the numbers of a normalisation layer are part of what the model computes. A
    model from `torch.jit.freeze` has its weights inside its code, and no hash either.
    """
    if not isinstance(model, nn.Module):
        return None
    plain = unwrap(model)
    scripts = (module for module in plain.modules() if isinstance(module, torch.jit.ScriptModule))
    if any(not script._c.hasattr("training") for script in scripts):  # `torch.jit.freeze` leaves no mode in a script
        return None
    named = {**dict(plain.named_parameters()), **dict(plain.named_buffers())}
    return _digest((name.replace("_orig_mod.", ""), named[name]) for name in sorted(named))


def architecture_hash(model: object) -> str:
    """Of modules, their settings and their code, without wrappers and weights.

    Settings are what the model prints and the attributes of its modules, such as a temperature, a list of layers or a
    function. Code is `forward` and what it reaches by name of the user's own code: methods, functions, functions of
    autograd. With something that cannot be described, such as an object or a hook, the hash is different each time, so
    that nothing kept under it is taken for the same model's.

    Example:
        >>> first, second = nn.Identity(), nn.Identity()
        >>> second.temperature = 2.0
        >>> architecture_hash(first) == architecture_hash(second)
        False
    """
    if not isinstance(model, nn.Module):
        return settings_hash(None)
    try:
        return _architecture(model)
    except (RecursionError, ValueError):  # a module that holds one that holds it; a variable that is not there yet
        return _unknown()


def _architecture(model: nn.Module) -> str:
    plain = unwrap(model)
    return settings_hash([repr(plain), {name: _settings(module) for name, module in plain.named_modules()}])


def _settings(module: nn.Module) -> dict[str, Any]:
    """The attributes and the code of a module; tensors among the attributes are neither parameters nor buffers."""
    if isinstance(module, torch.jit.ScriptModule):
        return {"own": _unknown()}
    own = {name: _described(value) for name, value in vars(module).items() if name not in _OF_ALL_MODULES}
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    settings = {"own": own, "forward": _described(type(module).forward), "hooks": _unknown() if any(hooks) else None}
    reached = _reached(type(module), ["__call__", "forward"])
    return {**settings, "class": _described(reached)} if reached else settings


def _reached(kind: type, names: list[str]) -> list[object]:
    """What has these names in a class and its bases, and what its code names there, where it is the user's own."""
    found: list[object] = []
    defined = [vars(base) for base in kind.__mro__ if _is_own(base)]
    for name in names:  # which grows
        for part in defined:
            value = part.get(name)
            value = getattr(value, "__func__", None) or getattr(value, "fget", None) or value  # static, property
            if isinstance(value, _VALUES):
                found.append([name, value])
            elif isinstance(value, FunctionType):
                found.append([name, value])
                both = value, unwrapped(value)  # a wrapper, perhaps, and what it wraps, which may be a class
                codes = [code for one in both if isinstance(one, FunctionType) for code in _codes(one.__code__)]
                named = dict.fromkeys(other for code in codes for other in code.co_names)
                names += [other for other in named if other not in names]
    return found


def _is_own(thing: FunctionType | ModuleType | type) -> bool:
    """Whether it is the user's own code, which may change under the same versions of libraries."""
    name = thing.__name__ if isinstance(thing, ModuleType) else str(thing.__module__)
    root = name.partition(".")[0]
    if root in ("torch", "pclc") or root in sys.stdlib_module_names:
        return False
    # A worker of a cluster runs the user's `__main__` under a file of the cluster's library.
    file = "" if root == "__main__" else getattr(sys.modules.get(root), "__file__", None) or ""
    return not {"site-packages", "dist-packages"} & set(Path(file).parts)


def _described(value: object, told: list[FunctionType] | None = None) -> Any:
    """What can be written as JSON, and is the same for what does the same; functions that are `told` have a number."""
    told = [] if told is None else told
    if value is None or isinstance(value, bool | int | float | str):
        return repr(value)
    if isinstance(value, torch.dtype | torch.device | torch.Size | type | Enum):
        return repr(value)
    if isinstance(value, Tensor):
        return tensor_hash(value)
    if isinstance(value, nn.Module):
        return model_hash(value), _architecture(value)
    if isinstance(value, tuple | list):
        return [_described(item, told) for item in value]
    if isinstance(value, set | frozenset):
        return sorted(settings_hash(_described(item, [*told])) for item in value)  # in no order: each on its own
    if isinstance(value, Mapping):
        return [[_described(key, told), _described(item, told)] for key, item in value.items()]
    if isinstance(value, np.ndarray) and value.dtype != object:
        return [str(value.dtype), value.shape, hashlib.sha256(value.tobytes()).hexdigest()]
    mode = value.__self__ if isinstance(value, MethodType) else value  # a decorated function holds the mode's `clone`
    if isinstance(mode, _MODES):
        return [type(mode).__qualname__, _described(vars(mode))]
    if isinstance(value, partial):
        return _described([value.func, value.args, value.keywords], told)
    if isinstance(value, BuiltinFunctionType):
        return repr(value.__qualname__)
    if isinstance(value, FunctionType):
        original = vars(value).get("_torchdynamo_orig_callable")  # of `torch.compile`
        if original is not None:
            return _described(original, told)
        return told.index(value) if value in told else _function(value, told)
    if is_dataclass(value):
        kind = type(value)
        content = {field.name: _described(getattr(value, field.name), told) for field in fields(value)}
        code = _reached(kind, [name for name in vars(kind) if name == "__call__" or not name.startswith("__")])
        return [kind.__qualname__, content, *_described(code, told)]
    return _unknown()


def _function(function: FunctionType, told: list[FunctionType]) -> list[Any]:
    """Its code and what it computes with: defaults, what it has closed over, and what its globals hold."""
    told.append(function)
    codes = list(_codes(function.__code__))
    # Not `co_names`, which has attributes too: a script that calls its model `model` may have one of that name.
    read = (step.argval for code in codes for step in dis.get_instructions(code) if step.opname == "LOAD_GLOBAL")
    known = [function.__globals__.get(name) for name in dict.fromkeys(read)]
    for module in [value for value in known if isinstance(value, ModuleType) and _is_own(value)]:
        known += [vars(module).get(name) for code in codes for name in code.co_names]
    of_autograd = [value for value in known if isinstance(value, type) and issubclass(value, torch.autograd.Function)]
    used: list[object] = [value for value in known if isinstance(value, _VALUES)]
    used += [value for value in known if isinstance(value, FunctionType) and _is_own(value)]
    used += [_reached(kind, ["forward", "backward", "setup_context"]) for kind in of_autograd]
    return [
        _code(function.__code__),
        _described([function.__defaults__, function.__kwdefaults__], told),
        _described([cell.cell_contents for cell in function.__closure__ or ()], told),
        _described(used, told),
    ]


def _codes(code: CodeType) -> Iterator[CodeType]:
    """The code and that of the functions and comprehensions inside it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _code(code: CodeType) -> list[Any]:
    constants = [
        _code(one) if isinstance(one, CodeType) else sorted(map(repr, one)) if isinstance(one, frozenset) else repr(one)
        for one in code.co_consts
    ]
    return [code.co_code.hex(), code.co_names, constants]


def _unknown() -> str:
    return uuid4().hex


def settings_hash(settings: Any) -> str:
    """Of what can be written as JSON."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _digest(named: Iterator[tuple[str, Tensor]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in named:
        values = (tensor.to_dense() if tensor.layout != torch.strided else tensor).detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)};".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()[:_DIGITS]
