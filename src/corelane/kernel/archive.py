"""A tree of small files inside a tar archive (plain, .gz, .bz2 or .xz), read once into memory.

Reading streams through the archive once and never extracts to disk; the size unpacked is bounded.
"""

import bz2
import gzip
import lzma
import tarfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import basename, dirname, normpath
from typing import IO, cast

MAX_BYTES = 2 << 30
"""The most that is unpacked; tar pads files of a live sysfs to 4 KiB: large machines come near 1 GiB."""
MAX_FILE = 1 << 20
"""Files are kept up to this length."""

_DAMAGE = ("TruncatedHeaderError", "InvalidHeaderError")
"""Subclasses of tarfile.HeaderError that are not the archive's end; typeshed does not list them."""
_MAX_LINKS = 40


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


@dataclass(slots=True)
class _Contents:
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    children: dict[str, set[str]] = field(default_factory=dict)

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
        return _resolve(whole, self.contents.links)


def _resolve(path: str, links: dict[str, str]) -> str:
    """Follow symbolic links, at most 40 of them as Linux does; a path outside the archive leads nowhere."""
    done, todo, followed = "", path.split("/"), 0
    while todo:
        done = normpath(f"{done}/{todo.pop(0)}").lstrip("/")
        link = links.get(done)
        if link is not None and (followed := followed + 1) <= _MAX_LINKS:
            todo = link.split("/") + todo
            done = "" if link.startswith("/") else dirname(done)
    return done


def read_archive(path: str | Path, wanted: Callable[[str], bool]) -> Archive:
    """Return the files of a tar archive (ustar, GNU or pax) whose path `wanted` accepts.

    Raises ArchiveError for a damaged archive, and OSError for a file that cannot be read.
    """
    contents = _Contents()
    try:
        with Path(path).open("rb") as raw, _decoder(raw) as stream, _opened(stream) as archive:
            for member in archive:
                if archive.offset > MAX_BYTES:
                    raise ArchiveError(f"it unpacks to more than {MAX_BYTES >> 30} GiB")
                _keep(contents, archive, member, wanted)
    except OSError as error:
        if error.errno is not None:
            raise
        raise ArchiveError(f"{path}: not a complete tar archive: {error}") from None
    except (tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ArchiveError) as error:
        raise ArchiveError(f"{path}: not a complete tar archive: {error}") from None
    return Archive(contents)


def _decoder(raw: IO[bytes]) -> IO[bytes]:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if magic.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(raw))
    return cast("IO[bytes]", lzma.LZMAFile(raw)) if magic == b"\xfd7zXZ\0" else raw


def _opened(stream: IO[bytes]) -> tarfile.TarFile:
    return tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header, encoding="utf-8", errors="replace")


def _keep(
    contents: _Contents, archive: tarfile.TarFile, member: tarfile.TarInfo, wanted: Callable[[str], bool]
) -> None:
    path = "" if member.name == "." else member.name.removeprefix("./").strip("/")
    if not wanted(path):
        return
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
