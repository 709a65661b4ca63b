import io
import lzma
import resource
import tarfile
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.kernel import archive
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


def header(kind, size, name="x"):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, size
    return info.tobuf(tarfile.GNU_FORMAT)


EXTENSIONS = [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]


@pytest.mark.parametrize("size", [1 << 20, 8 << 30])
@pytest.mark.parametrize("kind", EXTENSIONS)
def test_a_header_longer_than_any_path_is_refused_before_it_is_read(tmp_path, kind, size):
    path = tmp_path / "bomb.tar"
    with path.open("wb") as file:
        file.write(header(kind, size))
        file.truncate(1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ArchiveError, match=f"a header of {size} bytes"):
        read_archive(path, everything)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100 << 10


def record(key, value):
    text = f" {key}={value}\n".encode()
    length = len(text) + len(str(len(text) + 2))
    data = str(length).encode() + text
    return data.ljust(-len(data) // 512 * -512, b"\0"), len(data)


@pytest.mark.parametrize(
    ("blocks", "why"),
    [
        ([header(tarfile.GNUTYPE_LONGNAME, 5) + b"name".ljust(512, b"\0")] * 2000, "chain of headers"),
        ([header(tarfile.GNUTYPE_SPARSE, 0)], "sparse"),
        ([header(tarfile.REGTYPE, 100 << 30)], "2 GiB"),
        (
            [header(tarfile.GNUTYPE_LONGNAME, 9000) + b"a/" * 4608, header(tarfile.REGTYPE, 0)],
            "a path of more",
        ),
    ],
)
def test_an_archive_beyond_any_use_is_refused(tmp_path, blocks, why):
    path = tmp_path / "x.tar"
    path.write_bytes(b"".join(blocks) + bytes(1024))
    with pytest.raises(ArchiveError, match=why):
        read_archive(path, everything)


def test_global_headers_are_bounded_in_sum(tmp_path):
    data, size = record("comment", "x" * 60_000)
    path = tmp_path / "x.tar"
    path.write_bytes((header(tarfile.XGLTYPE, size) + data) * 20 + bytes(1024))
    with pytest.raises(ArchiveError, match="global headers"):
        read_archive(path, everything)


def test_what_is_kept_of_an_archive_is_bounded(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_KEPT", 10_000)
    path = tmp_path / "x.tar"
    path.write_bytes(b"".join(header(tarfile.REGTYPE, 0, f"f{number}") for number in range(50)) + bytes(1024))
    with pytest.raises(ArchiveError, match="files and names"):
        read_archive(path, everything)
    assert read_archive(path, lambda name: name == "f7").read("f7") == ""


def test_xz_with_a_dictionary_larger_than_its_preset_needs_is_refused_and_streams_are_joined(tmp_path):
    plain = make(tmp_path / "x.tar").read_bytes()
    path = tmp_path / "x.tar.xz"
    path.write_bytes(lzma.compress(plain[:700]) + lzma.compress(plain[700:]))
    assert read_archive(path, everything).read("a/cpu/online") == "0-3\n"
    compressed = bytearray(lzma.compress(plain))
    at = compressed.index(b"\x21\x01") + 2  # LZMA2's properties: the size of the dictionary
    compressed[at] = 39
    crc = zlib.crc32(compressed[12 : 12 + (compressed[12] + 1) * 4 - 4]).to_bytes(4, "little")
    compressed[12 + (compressed[12] + 1) * 4 - 4 : 12 + (compressed[12] + 1) * 4] = crc
    path.write_bytes(compressed)
    with pytest.raises(ArchiveError, match="Memory usage limit"):
        read_archive(path, everything)
    path.write_bytes(lzma.compress(plain)[:120])
    with pytest.raises(ArchiveError):
        read_archive(path, everything)
