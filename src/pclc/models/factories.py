"""Models from elsewhere: `package.module:factory`."""

import importlib
import inspect
from collections.abc import Callable

from torch import nn

Factory = Callable[..., nn.Module]


def import_factory(name: str) -> Factory:
    """Import `factory` from `package.module`. This runs the module's code: only for names the user trusts."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"Expected a model from elsewhere to be named `package.module:factory`, but got {name!r}.")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"The model {name!r} could not be imported: {error}.") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        problem = "has no" if factory is None else "has, but cannot call,"
        raise ValueError(f"The model {name!r} could not be made: module {module_name} {problem} {attribute!r}.")
    return factory  # type: ignore[no-any-return]  # what it returns is checked where it is called


def call_factory(name: str, factory: Factory, **arguments: int | None) -> nn.Module:
    """Call `factory` with those arguments that were given (not None) and that its signature accepts."""
    parameters = inspect.signature(factory).parameters
    accepts_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    accepted = {
        key: value for key, value in arguments.items() if value is not None and (accepts_all or key in parameters)
    }
    model = factory(**accepted)
    if not isinstance(model, nn.Module):
        raise ValueError(f"Expected the model {name!r} to be a torch.nn.Module, but got a {type(model).__name__}.")
    return model
