import doctest
import importlib
import pkgutil

import pytest

import pclc.attacks

MODULES = [f"pclc.attacks.{module.name}" for module in pkgutil.iter_modules(pclc.attacks.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0
