"""An unpickler that builds arrays, dicts, lists, bytes and numbers, and nothing else.

A pickle is a program: what it names is imported and called. Here every permitted name stands for a class of this
file, so not even numpy's own code runs: a forged dtype could make numpy take bytes for pointers to objects.
"""

import io
import pickle
from typing import Any

import numpy as np
import numpy.typing as npt

_DTYPES = {"b1", "u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"}


class _RefusedError(Exception):
    """The reason why a pickle is refused, as a clause that starts with "it"."""


class _StandIn:
    """A class that a pickle cannot alter, nor its instances."""

    __slots__ = ()

    def __setstate__(self, state: object) -> None:
        raise _RefusedError("it sets the state of something that has none")


class _Dtype(_StandIn):
    """``numpy.dtype`` for plain numbers; object and structured dtypes are refused."""

    __slots__ = ("dtype",)

    def __init__(self, code: str | bytes, *_: object) -> None:
        name = code.decode("latin1") if isinstance(code, bytes) else str(code)
        if name not in _DTYPES:
            raise _RefusedError(f"it holds an array of the dtype {name!r}, which is not a plain number")
        self.dtype = np.dtype(name)

    def __setstate__(self, state: Any) -> None:
        _, order, subdtype, names, fields, *_ = state
        if not (subdtype is None and names is None and fields is None):
            raise _RefusedError("it holds an array of a structured dtype")
        if order in (">", b">"):
            self.dtype = self.dtype.newbyteorder(">")


class _Array(_StandIn):
    """``numpy.ndarray`` from its dtype, shape and raw bytes."""

    __slots__ = ("array",)

    def __init__(self, *_: object) -> None:
        self.array: npt.NDArray[Any] = np.empty(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, raw = state
        self._fill(raw, dtype, shape, "F" if fortran else "C")

    def _fill(self, raw: Any, dtype: Any, shape: Any, order: Any) -> None:
        if not isinstance(dtype, _Dtype) or not isinstance(raw, bytes | bytearray):
            raise _RefusedError("it holds an array that is not made of plain numbers")
        self.array = np.frombuffer(bytearray(raw), dtype.dtype).reshape(shape, order=order)


class _FromBuffer(_Array):
    """numpy's ``_frombuffer``, with which protocol 5 writes arrays."""

    __slots__ = ()

    def __init__(self, raw: Any, dtype: Any, shape: Any, order: Any, *_: object) -> None:
        super().__init__()
        self._fill(raw, dtype, shape, order)


class _Latin1(_StandIn):
    """``_codecs.encode``, with which Python 3 writes bytes in protocol 2."""

    __slots__ = ()

    def __new__(cls, text: Any, encoding: Any) -> Any:
        if encoding not in ("latin1", b"latin1") or not isinstance(text, str):
            raise _RefusedError(f"it encodes text as {encoding!r}")
        return text.encode("latin1")


_PERMITTED: dict[tuple[str, str], type] = {
    ("_codecs", "encode"): _Latin1,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
}
for _core in ("numpy.core", "numpy._core"):  # before and since numpy 2
    _PERMITTED[f"{_core}.multiarray", "_reconstruct"] = _Array
    _PERMITTED[f"{_core}.numeric", "_frombuffer"] = _FromBuffer


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type:
        try:
            return _PERMITTED[module, name]
        except KeyError:
            raise _RefusedError(
                f"it asks for {module}.{name}, but only arrays, dicts, lists, bytes and numbers are read"
            ) from None


def load_plain_pickle(content: bytes, name: str) -> dict[str, Any]:
    """Read a pickled dict of arrays, lists, bytes and numbers; ``name`` is what errors call the file.

    Its keys come back as text, whether Python 2 or 3 wrote them.

    >>> import pickle
    >>> load_plain_pickle(pickle.dumps({b"labels": [1, 2]}), "batch")
    {'labels': [1, 2]}
    >>> load_plain_pickle(pickle.dumps(id), "batch")
    Traceback (most recent call last):
    ...
    ValueError: batch was refused: it asks for builtins.id, but only arrays, dicts, lists, bytes and numbers are read.
    """
    try:
        value = _Unpickler(io.BytesIO(content), encoding="bytes").load()
    except _RefusedError as error:
        raise ValueError(f"{name} was refused: {error}.") from error
    except Exception as error:  # a damaged pickle can fail in any way at all
        raise ValueError(f"{name} is truncated or not a pickle: {error}.") from error
    if not isinstance(value, dict):
        raise ValueError(f"{name}: expected a pickled dict, but got {type(value).__name__}.")
    return {
        key.decode("latin1") if isinstance(key, bytes) else str(key): item.array if isinstance(item, _Array) else item
        for key, item in value.items()
    }
