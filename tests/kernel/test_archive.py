import io
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kernel.archive import ArchiveError, read_archive
from corelane.kernel.files import Directory

LONG = "deep/" * 30 + "file"


def everything(path):
    return True


def make(path, mode="w", tar_format=tarfile.GNU_FORMAT):
    with tarfile.open(path, mode, format=tar_format) as tar:
        for name, text in {"a/cpu/online": "0-3\n", f"a/{LONG}": "long", "b/empty": ""}.items():
            info = tarfile.TarInfo(f"./{name}")
            info.size, info.mode = len(text), 0o444
            tar.addfile(info, io.BytesIO(text.encode()))
        for name, target in {
            "a/link": "cpu",
            "a/loop": "loop",
            "a/abs": "/a/cpu/online",
            f"a/{LONG}2": LONG,
        }.items():
            info = tarfile.TarInfo(name)
            info.type, info.linkname = tarfile.SYMTYPE, target
            tar.addfile(info)
        hard = tarfile.TarInfo("a/hard")
        hard.type, hard.linkname = tarfile.LNKTYPE, "./a/cpu/online"
        tar.addfile(hard)
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
@pytest.mark.parametrize("tar_format", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_archives_of_every_kind_are_read_like_directories(tmp_path, mode, tar_format):
    tree = read_archive(make(tmp_path / "x.tar", mode, tar_format), everything).under("a")
    assert (
        tree.read("cpu/online")
        == tree.read("link/online")
        == tree.read("abs")
        == tree.read("hard")
        == "0-3\n"
    )
    assert tree.read(LONG) == "long"
    assert tree.target(LONG + "2") == "file"
    assert tree.target("link") == "cpu"
    assert tree.mode("cpu/online") == 0o444
    assert tree.names("link") == ["online"]
    assert tree.names("") == ["abs", "cpu", "deep", "hard", "link", "loop"]
    assert tree.directories("cpu") == ["a/cpu"]
    for missing in ("none", "cpu", "loop", "cpu/online/deeper", "../b/none"):
        assert tree.read(missing) is None
    assert tree.names("cpu/online") == []
    assert tree.target("cpu") is None


def test_a_real_tree_reads_the_same_from_archive_and_directory(tmp_path):
    source = tmp_path / "src"
    (source / "x" / "y").mkdir(parents=True)
    (source / "x" / "y" / "f").write_text("1")
    (source / "x" / "to").symlink_to("y/f")
    with tarfile.open(tmp_path / "t.tar.gz", "w:gz") as tar:
        tar.add(source, arcname=".")
    trees = [Directory(str(source)), read_archive(tmp_path / "t.tar.gz", everything)]
    for request in (
        lambda t: t.names(""),
        lambda t: t.names("x"),
        lambda t: t.read("x/to"),
        lambda t: t.target("x/to"),
        lambda t: t.mode("x/y/f"),
    ):
        assert request(trees[0]) == request(trees[1])


def test_only_wanted_files_are_kept(tmp_path):
    tree = read_archive(make(tmp_path / "x.tar"), lambda path: path.startswith("b/"))
    assert tree.names("") == ["b"]
    assert tree.read("b/empty") == ""


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_a_truncated_archive_is_named(tmp_path, mode):
    path = make(tmp_path / "x.tar", mode)
    data = path.read_bytes()
    path.write_bytes(data[: 512 * 3 + 1 if mode == "w" else len(data) // 2])
    with pytest.raises(ArchiveError, match=r"x\.tar: not a complete tar archive"):
        read_archive(path, everything)


@settings(deadline=None)
@given(st.binary(max_size=1200), st.sampled_from([b"", b"\x1f\x8b\x08", b"BZh9", b"\xfd7zXZ\0"]))
def test_any_bytes_give_a_tree_or_the_modules_error(tmp_path_factory, noise, magic):
    path = tmp_path_factory.getbasetemp() / "noise.tar"
    path.write_bytes(magic + noise)
    try:
        read_archive(path, everything)
    except ArchiveError as error:
        assert "noise.tar" in str(error)


def test_a_missing_archive_is_an_oserror(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_archive(tmp_path / "none.tar", everything)
