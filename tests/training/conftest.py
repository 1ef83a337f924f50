"""What the tests of training share."""

import pytest

import pclc


@pytest.fixture(scope="session")
def digits() -> pclc.Dataset:
    return pclc.load_dataset("digits")
