import doctest
import importlib
import pkgutil

import pytest

import pclc.data

MODULES = [f"pclc.data.{module.name}" for module in pkgutil.iter_modules(pclc.data.__path__)]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name):
    assert doctest.testmod(importlib.import_module(name)).failed == 0
