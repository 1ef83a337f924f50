import os

import pytest

from pclc.files import replace_atomically, write_atomically


def test_writes_and_replaces(tmp_path):
    path = tmp_path / "x.bin"
    write_atomically(path, b"old")
    write_atomically(str(path), b"new")
    assert path.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["x.bin"]


def test_a_failing_writer_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "x.bin"
    write_atomically(path, b"old")

    def write_half():
        with replace_atomically(path) as temporary:
            temporary.write_bytes(b"half of the n")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        write_half()
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.bin"]


@pytest.mark.parametrize("failing", ["fsync", "replace"])
def test_a_failure_after_the_writing_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "x.bin"
    write_atomically(path, b"old")

    def fail(*_):
        raise OSError("disk gone")

    if failing == "fsync":
        monkeypatch.setattr("os.fsync", fail)
    else:
        monkeypatch.setattr("pathlib.Path.replace", fail)
    with pytest.raises(OSError, match="disk gone"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["x.bin"]


def test_the_new_file_is_invisible_until_it_is_whole_and_on_the_disk(tmp_path, monkeypatch):
    path = tmp_path / "x.bin"
    flushed = []
    fsync = os.fsync
    monkeypatch.setattr("os.fsync", lambda descriptor: (flushed.append(path.exists()), fsync(descriptor)))
    with replace_atomically(path) as temporary:
        temporary.write_bytes(b"new")
        assert temporary.parent == tmp_path  # another folder could be another file system, where nothing is atomic
        assert temporary.suffix == path.suffix
        assert not path.exists()
    assert flushed[0] is False  # the content, before the name


def test_permissions_are_those_of_any_new_file(tmp_path):
    write_atomically(tmp_path / "ours", b"")
    (tmp_path / "plain").write_bytes(b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode
