"""A tree of small files inside a tar archive (plain, .gz, .bz2 or .xz), read once into memory.

Reading streams through the archive once and never extracts to disk; the size unpacked is bounded.
"""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import basename, dirname, normpath
from typing import IO, Any

MAX_BYTES = 2 << 30
"""The most that is unpacked; tar pads files of a live sysfs to 4 KiB: large machines come near 1 GiB."""
MAX_FILE = 1 << 20
"""Files are kept up to this length."""

MAX_KEPT = 256 << 20
"""The most that is kept of all files and names."""
_MAX_PATH = 4096
_MAX_HEADER = 64 << 10
"""Longest name or pax record of a member; tarfile reads it at once, whatever size the archive gives it."""
_MAX_GLOBAL = 1 << 20
"""Most bytes of records for all members, which tarfile copies for each."""
_XZ_MEMORY = 128 << 20
_EXTENSIONS = frozenset(
    {
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
    }
)

_DAMAGE = ("TruncatedHeaderError", "InvalidHeaderError")
"""Subclasses of tarfile.HeaderError that are not the archive's end; typeshed does not list them."""
_MAX_LINKS = 40
_ENTRY = 500
"""Bytes that an entry takes beside its name and content."""


class ArchiveError(ValueError):
    """A file that is not a complete tar archive; the message names the file."""


class _Header(tarfile.TarInfo):
    """A header whose damage is an error: tarfile takes damage behind the first member for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Header":
        try:
            return super().fromtarfile(archive)
        except tarfile.HeaderError as error:
            if type(error).__name__ in _DAMAGE:
                raise ArchiveError(f"{error} at byte {archive.offset}") from None
            raise

    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        """Check the size of what is read next: tarfile does not."""
        if self.type in _EXTENSIONS and not 0 <= self.size <= _MAX_HEADER:
            raise ArchiveError(f"a header of {self.size} bytes; the limit is {_MAX_HEADER}")
        if self.type == tarfile.XGLTYPE:
            read = getattr(archive, "global_bytes", 0) + self.size
            if read > _MAX_GLOBAL:
                raise ArchiveError(f"global headers of more than {_MAX_GLOBAL} bytes")
            archive.global_bytes = read  # type: ignore[attr-defined]
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise _sparse(self)
        member: tarfile.TarInfo = super()._proc_member(archive)  # type: ignore[misc]
        return member

    def _proc_gnusparse_00(self, member: tarfile.TarInfo, *_: object) -> None:
        raise _sparse(member)

    _proc_gnusparse_01 = _proc_gnusparse_10 = _proc_gnusparse_00


def _sparse(member: tarfile.TarInfo) -> ArchiveError:
    return ArchiveError(f"{member.name[:200]!r} is a sparse file; make the archive without --sparse")


class _XZ:
    """An .xz file, unpacked with a bounded dictionary, which `lzma.LZMAFile` does not offer."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decoder = self._new()

    @staticmethod
    def _new() -> lzma.LZMADecompressor:
        return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        while True:
            rest = self._decoder.unused_data
            if self._decoder.eof:
                rest = (rest + self._raw.read(1 << 16)).lstrip(b"\0")
                if not rest:
                    return b""
                self._decoder = self._new()
                data = self._decoder.decompress(rest, size)
            else:
                more = self._raw.read(1 << 16) if self._decoder.needs_input else b""
                if self._decoder.needs_input and not more:
                    raise EOFError("cut short")
                data = self._decoder.decompress(more, size)
            if data:
                return data


@dataclass(slots=True)
class _Contents:
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    children: dict[str, set[str]] = field(default_factory=dict)
    size: int = 0

    def place(self, path: str) -> None:
        """Enter a path into the directories above it."""
        while path and (parent := dirname(path)) != path:
            names = self.children.setdefault(parent, set())
            if (name := basename(path)) in names:
                return
            names.add(name)
            path = parent


@dataclass(frozen=True, slots=True)
class Archive:
    """The tree below `root` in an archive; a `files.Tree`. Symbolic links are followed inside the archive."""

    contents: _Contents
    root: str = ""

    def under(self, root: str) -> "Archive":
        return Archive(self.contents, root)

    def directories(self, suffix: str) -> list[str]:
        """The directories of the whole archive whose path ends with `suffix`."""
        return sorted(path for path in self.contents.children if f"/{path}".endswith(f"/{suffix}"))

    def read(self, path: str) -> str | None:
        content = self.contents.files.get(self._real(path))
        return None if content is None else content.decode("utf-8", "replace")

    def names(self, path: str) -> list[str]:
        return sorted(self.contents.children.get(self._real(path), ()))

    def target(self, path: str) -> str | None:
        where = f"{self._real(dirname(path))}/{basename(path)}"
        link = self.contents.links.get(where.lstrip("/"))
        return None if link is None else basename(link)

    def mode(self, path: str) -> int:
        return self.contents.modes.get(self._real(path), 0)

    def _real(self, path: str) -> str:
        whole = f"{self.root}/{path}" if self.root else path
        if whole in self.contents.files:
            return whole
        # At most 40 symbolic links are followed, as Linux does; a path outside the archive leads nowhere.
        links = self.contents.links
        done, todo, followed = "", whole.split("/"), 0
        while todo:
            done = normpath(f"{done}/{todo.pop(0)}").lstrip("/")
            link = links.get(done)
            if link is not None and (followed := followed + 1) <= _MAX_LINKS:
                todo = link.split("/") + todo
                done = "" if link.startswith("/") else dirname(done)
        return done


def read_archive(path: str | Path, is_wanted: Callable[[str], bool]) -> Archive:
    """Return the files of a tar archive (ustar, GNU or pax) whose path `wanted` accepts.

    Raises ArchiveError for a damaged archive, and OSError for a file that cannot be read.
    """
    contents = _Contents()
    try:
        with Path(path).open("rb") as raw, _decoder(raw) as stream, _opened(stream) as archive:
            while (member := archive.next()) is not None:
                archive.members.clear()  # type: ignore[attr-defined]  # it would keep every header
                if archive.offset > MAX_BYTES:
                    raise ArchiveError(f"it unpacks to more than {MAX_BYTES >> 30} GiB")
                _keep(contents, archive, member, is_wanted)
    except OSError as error:
        if error.errno is not None:
            raise
        raise ArchiveError(f"{path}: not a complete tar archive: {error}") from None
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError) as error:
        raise ArchiveError(f"{path}: not a complete tar archive: {error}") from None
    except RecursionError:
        raise ArchiveError(f"{path}: not a complete tar archive: a chain of headers without a file") from None
    return Archive(contents)


def _decoder(raw: IO[bytes]) -> AbstractContextManager[Any]:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=raw)
    if magic.startswith(b"BZh"):
        return bz2.BZ2File(raw)
    return nullcontext(_XZ(raw) if magic == b"\xfd7zXZ\0" else raw)


def _opened(stream: Any) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, encoding="utf-8", errors="replace")


def _keep(
    contents: _Contents, archive: tarfile.TarFile, member: tarfile.TarInfo, wanted: Callable[[str], bool]
) -> None:
    path = "" if member.name == "." else member.name.removeprefix("./").strip("/")
    if not wanted(path):
        return
    if max(len(path), len(member.linkname)) > _MAX_PATH:
        raise ArchiveError(f"a path of more than {_MAX_PATH} characters: {path[:100]!r}…")
    contents.size += len(path) + len(member.linkname) + _ENTRY
    contents.place(path)
    if member.issym():
        contents.links[path] = member.linkname
    elif member.islnk():
        contents.files[path] = contents.files.get(member.linkname.removeprefix("./"), b"")
    elif member.isdir():
        contents.children.setdefault(path, set())
    elif member.isreg():
        file = archive.extractfile(member) if member.size <= MAX_FILE else None
        contents.files[path] = file.read() if file else b""
        contents.modes[path] = member.mode
        contents.size += len(contents.files[path])
    if contents.size > MAX_KEPT:
        raise ArchiveError(f"its files and names need more than {MAX_KEPT >> 20} MiB")
