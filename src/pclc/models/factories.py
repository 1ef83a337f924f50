"""Models from elsewhere: `package.module:factory`."""

import importlib
import inspect
import sys
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path

from torch import nn

Factory = Callable[..., nn.Module]


def import_factory(name: str) -> Factory:
    """Import `factory` from `package.module`. This runs the module's code: only for names that the user trusts."""
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"Expected a model from elsewhere to be named `package.module:factory`, but got {name!r}.")
    try:
        with _working_folder():
            module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"The model {name!r} could not be imported: {error}.") from error
    except (Exception, SystemExit) as error:  # whatever the module's own code raises; it may be a script that exits
        raise ValueError(f"The model {name!r} could not be imported: {_text(error)}.") from error
    factory = getattr(module, attribute, None)
    if not callable(factory):
        raise ValueError(f"The model {name!r} could not be made: {module_name} has no function or class {attribute!r}.")
    if isinstance(factory, nn.Module):
        raise ValueError(
            f"Expected the model {name!r} to be a function or a class that makes a model, but got a model itself, "
            f"a {type(factory).__name__}."
        )
    return factory  # type: ignore[no-any-return]  # what it returns is checked where it is called


def call_factory(name: str, factory: Factory, **arguments: int | None) -> nn.Module:
    """Call `factory` with the arguments that are not None and that its signature accepts."""
    parameters = inspect.signature(factory).parameters
    accepts_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    accepted = {
        key: value for key, value in arguments.items() if value is not None and (accepts_all or key in parameters)
    }
    try:
        with _working_folder():
            model = _call(factory, accepted, named=parameters)
    except (Exception, SystemExit) as error:
        if ":" not in name:  # a model of this package has its own sentences
            raise
        raise ValueError(f"The model {name!r} could not be made: {_text(error)}.") from error
    if not isinstance(model, nn.Module):
        raise ValueError(f"Expected the model {name!r} to be a torch.nn.Module, but got a {type(model).__name__}.")
    return model


def _call(factory: Factory, arguments: dict[str, int], named: Container[str]) -> object:
    """Call it; if it takes any keyword and passes one on to a function that refuses it, leave that one out."""
    try:
        return factory(**arguments)
    except TypeError as error:
        text = str(error)
        refused = [key for key in arguments if key not in named and f"unexpected keyword argument '{key}'" in text]
        if not refused:
            raise
    return _call(factory, {key: value for key, value in arguments.items() if key not in refused}, named)


@contextmanager
def _working_folder() -> Iterator[None]:
    """Find modules in the working folder too, as `python -m` does but a console script does not."""
    folder = str(Path.cwd())
    if sys.flags.safe_path or folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:  # the module may have changed the path itself
            sys.path.remove(folder)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(".: ")
