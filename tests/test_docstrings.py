"""The examples in the docstrings are true."""

import doctest
import importlib
import pkgutil

import pytest

import pclc

MODULES = [
    module.name for module in pkgutil.walk_packages(pclc.__path__, "pclc.") if not module.name.endswith("__main__")
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_are_true(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    found = sum(bool(test.examples) for name in MODULES for test in finder.find(importlib.import_module(name)))
    assert found > 20
