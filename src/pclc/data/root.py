"""Where the data sets are kept."""

import os
from pathlib import Path


def data_root(root: str | os.PathLike[str] | None = None) -> Path:
    """Return the folder of the data sets: the argument, else ``PCLC_DATA``, else the user's cache folder.

    It has torchvision's folders (``MNIST/raw``, ``cifar-10-batches-py``, …), so one folder serves both. It need not
    exist.

    >>> data_root("here").name
    'here'
    """
    if root is not None:
        return Path(root).expanduser()
    if from_environment := os.environ.get("PCLC_DATA"):
        return Path(from_environment).expanduser()
    try:
        import platformdirs
    except ModuleNotFoundError as error:
        raise ValueError(
            "No data folder is known: give `root`, set the environment variable PCLC_DATA, or run "
            "`pip install 'pclc[data]'`, so that pclc can find the user's cache folder."
        ) from error
    return Path(platformdirs.user_cache_dir("pclc")) / "data"
