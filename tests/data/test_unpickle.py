"""Pickles are programs; these are the ones that must not run."""

import os
import pickle
import struct

import numpy as np
import pytest

from pclc.data import unpickle
from pclc.data.unpickle import load_plain_pickle


class Calls:
    """Pickles as a call of ``function``."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("dtype", ["u1", "i8", ">i4", "f4", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_come_back(protocol, dtype, order):
    array = np.asarray(np.arange(12).reshape(3, 4).astype(dtype), order=order)
    value = load_plain_pickle(pickle.dumps({"data": array, b"n": [1, 2.5, b"x", None]}, protocol), "file")
    assert value["data"].dtype == array.dtype
    assert np.array_equal(value["data"], array)
    assert value["n"] == [1, 2.5, b"x", None]
    value["data"][:] = 0  # what is read belongs to the reader


def test_both_names_of_numpys_core_are_known():
    written, names = pickle.dumps({"data": np.arange(3, dtype=np.uint8)}, 2), (b"numpy._core", b"numpy.core")
    (ours,) = [name for name in names if name in written]  # it depends on numpy's version
    for name in names:
        assert load_plain_pickle(written.replace(ours, name), "file")["data"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("inside", [lambda evil: evil, lambda evil: {"data": evil}, lambda evil: {b"labels": [evil]}])
@pytest.mark.parametrize(
    ("function", "arguments", "asked_for"),
    [
        (os.system, ("touch {}",), "system"),
        (eval, ("open({!r}, 'w')",), "eval"),
        (exec, ("open({!r}, 'w')",), "exec"),
        (__import__, ("os",), "__import__"),
        (getattr, ("", "join"), "getattr"),
        (np.load, ("{}",), "load"),
        (np.fromfile, ("{}",), "fromfile"),
    ],
)
def test_calls_are_refused_and_not_made(tmp_path, protocol, inside, function, arguments, asked_for):
    trace = tmp_path / "trace"
    content = pickle.dumps(inside(Calls(function, *(text.format(str(trace)) for text in arguments))), protocol)
    with pytest.raises(ValueError, match=rf"batch was refused: it asks for \S*{asked_for}, but only arrays"):
        load_plain_pickle(content, "batch")
    assert not trace.exists()


def test_dotted_names_are_refused():
    content = b"\x80\x04\x8c\x05numpy\x8c\x0endarray.tofile\x93."
    with pytest.raises(ValueError, match=r"asks for numpy.ndarray.tofile"):
        load_plain_pickle(content, "batch")


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "array",
    [
        np.array([{"a": 1}, [2]], dtype=object),
        np.zeros(2, dtype=[("a", "u1"), ("b", "O")]),
        np.zeros(2, dtype="V8"),
        np.array(["text"]),
        np.array(["2020-01-01"], dtype="M8[D]"),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_of_anything_but_numbers_are_refused(protocol, array):
    with pytest.raises(ValueError, match=r"was refused: it (holds an array of the dtype|asks for)"):
        load_plain_pickle(pickle.dumps({"data": array}, protocol), "batch")


def string(text):
    return b"X" + struct.pack("<I", len(text)) + text


def test_a_forged_dtype_cannot_turn_bytes_into_pointers():
    """numpy would believe a state that gives a plain dtype fields of objects; raw bytes would then be pointers."""
    fields = b"}" + string(b"a") + b"cnumpy\ndtype\n" + string(b"u1") + b"\x85RK\x00\x86s"
    state = b"(K\x03" + string(b"|") + b"N" + string(b"a") + b"\x85" + fields + b"K\x08K\x01K\x00t"
    content = b"\x80\x02cnumpy\ndtype\n" + string(b"u1") + b"\x85R" + state + b"b."
    with pytest.raises(ValueError, match="structured dtype"):
        load_plain_pickle(content, "batch")


def test_an_array_needs_bytes_and_a_dtype():
    start = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + string(b"b") + b"\x87R"
    dtype = b"cnumpy\ndtype\n" + string(b"u1") + b"\x85R"
    for raw, kind in ((b"]", dtype), (string(b"text"), dtype), (b"C\x01x", string(b"O"))):
        with pytest.raises(ValueError, match="not made of plain numbers"):
            load_plain_pickle(start + b"(K\x01K\x01\x85" + kind + b"\x89" + raw + b"tb.", "batch")


@pytest.mark.parametrize(
    "name", [b"_codecs\nencode", b"numpy\ndtype", b"numpy\nndarray", b"numpy.core.numeric\n_frombuffer"]
)
def test_what_is_permitted_cannot_be_altered(name):
    """BUILD with (None, {...}) would set attributes, on the class itself and so for every later file."""
    content = b"\x80\x02c" + name + b"\nN}" + string(b"changed") + b"K\x01s\x86b."
    with pytest.raises(ValueError, match="batch is truncated or not a pickle"):
        load_plain_pickle(content, "batch")
    assert not any(hasattr(stand_in, "changed") for stand_in in unpickle._PERMITTED.values())


def test_only_latin1_is_encoded():
    with pytest.raises(ValueError, match="it encodes text as 'zip'"):
        load_plain_pickle(b"\x80\x02c_codecs\nencode\n" + string(b"a") + string(b"zip") + b"\x86R.", "batch")


def test_what_is_no_dict_gets_a_sentence():
    with pytest.raises(ValueError, match="batch: expected a pickled dict, but got list"):
        load_plain_pickle(pickle.dumps([1]), "batch")


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"\x80\x02}q\x00", b"\x80\x63."])
def test_damaged_pickles_get_a_sentence(content):
    with pytest.raises(ValueError, match=r"batch (is truncated or not a pickle|was refused)"):
        load_plain_pickle(content, "batch")
