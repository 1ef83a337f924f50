"""The models, one file each. Every file here is imported, and registers what it makes: a new model is a new file."""

import importlib
import pkgutil

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
