"""Files that appear whole or not at all."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replace_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`; what is written there becomes `path` when the block ends well.

    The temporary file is flushed to disk before it takes its name, so that a reader sees the whole old file or the
    whole new one, even after a power failure. If the block raises, the temporary file is removed and `path` stays as it
    was; a process that is killed may leave a temporary file (hidden, its name begins with `.tmp-`), never a broken
    `path`. The temporary name keeps the suffix, because some writers choose the format by it.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> with replace_atomically(folder / "x.txt") as temporary:
        ...     _ = temporary.write_text("all of it")
        >>> (folder / "x.txt").read_text()
        'all of it'
    """
    path = Path(path)
    temporary = path.with_name(f".tmp-{secrets.token_hex(4)}-{path.name}")
    try:
        yield temporary
        with temporary.open("rb+") as written:  # Windows flushes only what is open for writing
            os.fsync(written.fileno())
        temporary.replace(path)
    except OSError as error:
        if error.errno is not None and error.filename is None:  # as for a full disk
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    _flush_folder(path.parent)


def write_atomically(path: str | os.PathLike[str], data: bytes | memoryview) -> None:
    """Write `data` to `path`, whole or not at all (see `replace_atomically`)."""
    with replace_atomically(path) as temporary:
        temporary.write_bytes(data)


def _flush_folder(folder: Path) -> None:
    """Make the new name itself durable; only POSIX can open a folder to flush it."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
