"""Download the official files; each appears whole and checked, or not at all."""

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pclc.data.description import Description, Download
from pclc.data.progress import progress_bar
from pclc.data.registry import describe
from pclc.data.root import data_root
from pclc.extras import needs_extra

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_TIMEOUT = 30  # seconds without a byte


class _Bar:
    """A task of rich's with the interface that pooch expects of a progress bar."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self._progress, self._task = progress, task
        self.total = 0  # which pooch sets

    def update(self, size: int) -> None:
        self._progress.update(self._task, total=self.total or None, advance=size)

    def reset(self) -> None:
        self._progress.reset(self._task)

    def close(self) -> None:
        self._progress.stop_task(self._task)


def _where_files_belong(description: Description, root: Path) -> str:
    folders: dict[Path, list[str]] = {}
    for download in description.downloads:
        path = PurePosixPath(download.path)
        folders.setdefault(root / path.parent, []).append(path.name)
    return "; ".join(f"{', '.join(names)} into {folder}" for folder, names in folders.items())


def _retrieve(download: Download, target: Path, progress: "Progress") -> list[str]:
    """Try one address after the other; return why each failed, or nothing once one has worked."""
    import pooch
    import requests

    pooch.get_logger().setLevel("WARNING")
    failures = []
    for url in download.urls:
        task = progress.add_task(target.name, total=None)
        # Without "identity" some servers declare a .gz as compressed in transit, and it arrives unpacked.
        options: dict[str, Any] = {"headers": {"Accept-Encoding": "identity"}, "timeout": _TIMEOUT}
        downloader = pooch.HTTPDownloader(progressbar=_Bar(progress, task), chunk_size=1 << 16, **options)
        try:
            pooch.retrieve(url, f"md5:{download.md5}", target.name, target.parent, downloader=downloader)
        except requests.ConnectionError:
            failures.append(f"{url}: no connection")
        except requests.Timeout:
            failures.append(f"{url}: no answer in {_TIMEOUT} s")
        except (OSError, ValueError) as error:
            failures.append(f"{url}: {' '.join(str(error).split())}")
        else:
            progress.update(task, total=1, completed=1)
            return []
        progress.remove_task(task)
    return failures


def fetch_files(description: Description, root: Path) -> list[Path]:
    """Download what ``description`` lists into ``root``; files that are there with the right checksum stay."""
    with needs_extra("data", "Downloading"):
        import pooch  # noqa: F401

    targets = []
    with progress_bar("{task.percentage:>3.0f} %") as progress:
        for download in description.downloads:
            target = root / download.path
            target.parent.mkdir(parents=True, exist_ok=True)  # here, as its failure is not the network's
            failures = _retrieve(download, target, progress)
            if failures:
                raise FileNotFoundError(
                    f"{description.name}: {target.name} could not be downloaded ({'; '.join(failures)}). "
                    f"Without network, put {_where_files_belong(description, root)}, "
                    f"and run `pclc data check {description.name} --root {root}`."
                )
            targets.append(target)
    return targets


def fetch_dataset(name: str, root: str | os.PathLike[str] | None = None) -> list[Path]:
    """Download the official files of a data set and return where they are.

    >>> fetch_dataset("digits")  # comes with scikit-learn
    []
    """
    description = describe(name)
    return [] if description.built_in else fetch_files(description, data_root(root))
