"""Data sets: readers of the official files, fetch with checksums, a fixed validation split."""

from pclc.data.dataset import Dataset
from pclc.data.load import load_dataset
from pclc.data.registry import dataset_names
from pclc.data.split import split_validation

__all__ = ["Dataset", "dataset_names", "load_dataset", "split_validation"]
