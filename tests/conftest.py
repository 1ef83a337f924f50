"""Settings for all tests."""

import os

# Two workers on two cores: more threads than cores wait for each other. Set before torch is imported, here and in the
# processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch

# Without a GPU the Triton kernels run in Triton's interpreter; it must be chosen before they are imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    without_cuda = pytest.mark.skip(reason="needs a CUDA device")
    without_data = pytest.mark.skip(reason="needs the official data files: set PCLC_DATA to the folder that holds them")
    for item in items:
        if "cuda" in item.keywords and not torch.cuda.is_available():
            item.add_marker(without_cuda)
        if "real_data" in item.keywords and "PCLC_DATA" not in os.environ:
            item.add_marker(without_data)


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)
