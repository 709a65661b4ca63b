"""A tree of small files inside a tar archive (plain, .gz, .bz2 or .xz), read once into memory.

tarfile would do, but takes half a second for the 16,000 entries of a large machine's sysfs; this reads the
headers of ustar, GNU and pax archives (POSIX.1-2017, pax; the GNU tar manual) and nothing else.
"""

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from posixpath import basename, dirname, normpath
from typing import IO, cast

__all__ = ["Archive", "ArchiveError", "read_archive"]

MAX_BYTES = 1 << 29
"""The most that is unpacked: half a GiB, ten times the largest snapshot seen."""

_BLOCK = 512
_MAX_LINKS = 40


class ArchiveError(ValueError):
    """A file that is no whole tar archive; the message names it."""


@dataclass(slots=True)
class _Contents:
    files: dict[str, bytes] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    children: dict[str, set[str]] = field(default_factory=dict)

    def place(self, path: str) -> None:
        """Make a path known to the directories above it."""
        while path and (parent := dirname(path)) != path:
            known = self.children.setdefault(parent, set())
            if (name := basename(path)) in known:
                return
            known.add(name)
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
    """The files of a tar archive whose path `wanted` picks. Raises ArchiveError, or OSError if unreadable."""
    try:
        return Archive(_collect(_unpack(Path(path)), wanted))
    except (EOFError, zlib.error, lzma.LZMAError, ArchiveError) as error:
        raise ArchiveError(f"{path}: not a whole tar archive: {error}") from None


def _unpack(path: Path) -> bytes:
    with path.open("rb") as raw, _decoder(raw) as stream:
        data = _read(stream)
    if len(data) > MAX_BYTES:
        raise ArchiveError(f"it unpacks to more than {MAX_BYTES >> 20} MiB")
    return data


def _decoder(raw: IO[bytes]) -> IO[bytes]:
    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"\x1f\x8b"):
        return cast("IO[bytes]", gzip.GzipFile(fileobj=raw))
    if magic.startswith(b"BZh"):
        return cast("IO[bytes]", bz2.BZ2File(raw))
    if magic == b"\xfd7zXZ\0":
        return cast("IO[bytes]", lzma.LZMAFile(raw))
    return raw


def _read(stream: IO[bytes]) -> bytes:
    try:
        return stream.read(MAX_BYTES + 1)
    except gzip.BadGzipFile as error:
        raise ArchiveError(str(error)) from None
    except OSError as error:
        if error.errno is None:  # how bz2 says that the data are corrupt
            raise ArchiveError(str(error)) from None
        raise


def _collect(data: bytes, wanted: Callable[[str], bool]) -> _Contents:
    contents = _Contents()
    for name, kind, mode, link, start, size in _members(data):
        path = name.removeprefix("./").strip("/")
        if not wanted(path):
            continue
        contents.place(path)
        if kind == b"2":
            contents.links[path] = link
        elif kind == b"1":
            contents.files[path] = contents.files.get(link.removeprefix("./"), b"")
        elif kind == b"5":
            contents.children.setdefault(path, set())
        elif kind in b"0\0":
            contents.files[path] = data[start : start + size]
            contents.modes[path] = mode
    return contents


def _members(data: bytes) -> Iterator[tuple[str, bytes, int, str, int, int]]:
    """Each member as (name, type, mode, link, offset, size), long names of GNU and pax headers joined in."""
    offset, extra = 0, dict[str, str]()
    while offset + _BLOCK <= len(data) and data[offset]:
        header = data[offset : offset + _BLOCK]
        kind, size, start = header[156:157], _number(header[124:136], offset), offset + _BLOCK
        if start + size > len(data):
            raise ArchiveError("it ends in the middle of a file")
        offset = start + -(-size // _BLOCK) * _BLOCK
        if kind in b"LK":
            extra["path" if kind == b"L" else "linkpath"] = _text(data[start : start + size])
        elif kind in b"xg":
            extra |= _pax(data[start : start + size]) if kind == b"x" else {}
        else:
            name = extra.get("path") or _name(header)
            link = extra.get("linkpath") or _text(header[157:257])
            yield name, kind, _number(header[100:108], offset), link, start, size
            extra = {}
    if offset == 0 and data.strip(b"\0"):
        raise ArchiveError("it is shorter than one header")


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "replace")


def _number(raw: bytes, offset: int) -> int:
    if raw[0] & 0x80:  # GNU's base 256, for what octal cannot hold
        return int.from_bytes(raw, "big") & ~(0x80 << 8 * (len(raw) - 1))
    try:
        return int(raw.rstrip(b" \0") or b"0", 8)
    except ValueError:
        raise ArchiveError(f"no tar header at byte {offset}") from None


def _pax(raw: bytes) -> dict[str, str]:
    """Lines of `LENGTH KEY=VALUE`; only the keys we use."""
    records = dict[str, str]()
    while raw:
        digits, _, _ = raw.partition(b" ")
        length = int(digits) if digits.isdigit() else 0
        key, _, value = raw[len(digits) + 1 : length - 1].partition(b"=")
        if not key:
            raise ArchiveError("a pax header is malformed")
        if key in (b"path", b"linkpath"):
            records[key.decode()] = value.decode("utf-8", "replace")
        raw = raw[length:]
    return records
