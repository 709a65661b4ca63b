import os
import resource
import stat

import pytest

from corelane.kernel.files import Directory, remove_temporary, write_atomic


def test_a_write_replaces_the_whole_file_with_the_mode_asked_for(tmp_path):
    path = tmp_path / "state"
    path.write_text("a much longer content than the new one")
    write_atomic(path, "new", mode=0o600)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    write_atomic(str(path), b"\x00\xff")
    assert path.read_bytes() == b"\x00\xff"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_content_and_directory_reach_the_disk_before_a_write_returns(tmp_path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def watch_fsync(fd):
        steps.append("directory" if stat.S_ISDIR(os.fstat(fd).st_mode) else "file")
        fsync(fd)

    def watch_replace(*args, **kwargs):
        steps.append("rename")
        replace(*args, **kwargs)

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(os, "replace", watch_replace)
    write_atomic(tmp_path / "state", "x")
    assert steps == ["file", "rename", "directory"]


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "state"
    path.write_text("old")

    def fail(fd):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, "new")
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["state"]


def test_what_killed_writers_left_is_removed_and_nothing_else(tmp_path):
    for name in (".a[1].json.x9.tmp", ".a1.json.x9.tmp", ".a[1].json.tmpx", "a[1].json"):
        (tmp_path / name).touch()
    remove_temporary(tmp_path / "a[1].json")
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [".a1.json.x9.tmp", ".a[1].json.tmpx", "a[1].json"]
    remove_temporary(tmp_path / "absent" / "file")


def test_a_write_into_a_missing_directory_raises(tmp_path):
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "nowhere" / "state", "x")


def test_reads_are_rooted_and_never_raise(tmp_path):
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "online").write_text("0-3\n")
    (tmp_path / "cpu" / "raw").write_bytes(b"\xff\n")
    (tmp_path / "link").symlink_to("../somewhere/driver")
    tree = Directory(str(tmp_path))
    assert tree.read("cpu/online") == "0-3\n"
    assert tree.read("cpu/raw") == "�\n"
    assert tree.names("cpu") == ["online", "raw"]
    assert tree.target("link") == "driver"
    assert tree.mode("cpu/online") & 0o400
    for missing in ("cpu", "cpu/none", "cpu/online/deeper", "link", "nul\0"):
        assert tree.read(missing) is None
    assert tree.names("cpu/online") == tree.names("none") == []
    assert tree.target("cpu/online") is None
    assert tree.mode("none") == 0


def test_files_larger_than_one_read_come_whole(tmp_path):
    (tmp_path / "big").write_text("x" * 200_000)
    assert Directory(str(tmp_path)).read("big") == "x" * 200_000
    assert len(Directory("/proc").read("self/status").splitlines()) > 10


@pytest.mark.parametrize("durable", [True, False])
def test_a_failed_write_names_the_file(tmp_path, durable):
    """The kernel's EFBIG stands for a full disk: both come from write(2), which names no file."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large") as failed:
            write_atomic(tmp_path / "state", b"x" * 100, durable=durable)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert failed.value.filename == str(tmp_path / "state")
    assert list(tmp_path.iterdir()) == []
