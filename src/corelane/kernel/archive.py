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

MAX_BYTES = 2 << 30
"""The most that is unpacked; tar pads files of a live sysfs to 4 KiB: large machines come near 1 GiB."""
MAX_FILE = 1 << 20
"""Files are kept up to this length."""

_BLOCK = 512
_PIECE = 1 << 20
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
        with Path(path).open("rb") as raw, _decoder(raw) as stream:
            return Archive(_collect(_Stream(stream), wanted))
    except (EOFError, zlib.error, lzma.LZMAError, ArchiveError) as error:
        raise ArchiveError(f"{path}: not a whole tar archive: {error}") from None


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


@dataclass(slots=True)
class _Stream:
    """Bytes in order, read in large pieces; `position` counts those handed out or skipped."""

    source: IO[bytes]
    position: int = 0
    _piece: bytes = b""
    _offset: int = 0

    def take(self, count: int) -> bytes:
        """The next bytes; fewer only where the stream ends."""
        if len(self._piece) - self._offset < count:
            self._refill(count)
        taken = self._piece[self._offset : self._offset + count]
        self._offset += len(taken)
        self.position += len(taken)
        return taken

    def skip(self, count: int) -> None:
        here = min(count, len(self._piece) - self._offset)
        self._offset += here
        self.position += here
        count -= here
        while count > 0 and (taken := len(self.take(min(count, _PIECE)))):
            count -= taken
        if count > 0:
            raise ArchiveError("it ends in the middle of a file")

    def _refill(self, count: int) -> None:
        pieces = [self._piece[self._offset :]]
        while sum(map(len, pieces)) < count and (piece := self._read()):
            pieces.append(piece)
        self._piece, self._offset = b"".join(pieces), 0
        if self.position > MAX_BYTES:
            raise ArchiveError(f"it unpacks to more than {MAX_BYTES >> 30} GiB")

    def _read(self) -> bytes:
        try:
            return self.source.read(_PIECE)
        except gzip.BadGzipFile as error:
            raise ArchiveError(str(error)) from None
        except OSError as error:
            if error.errno is None:  # how bz2 says that the data are corrupt
                raise ArchiveError(str(error)) from None
            raise


def _collect(stream: _Stream, wanted: Callable[[str], bool]) -> _Contents:
    contents = _Contents()
    for member in _members(stream):
        path = member.name.removeprefix("./").strip("/")
        keep = wanted(path)
        content = stream.take(member.size) if keep and member.size <= MAX_FILE else b""
        stream.skip(-(-member.size // _BLOCK) * _BLOCK - len(content))
        if keep:
            _keep(contents, path, member, content)
    return contents


def _keep(contents: _Contents, path: str, member: "_Member", content: bytes) -> None:
    contents.place(path)
    match member.kind:
        case b"2":
            contents.links[path] = member.link
        case b"1":
            contents.files[path] = contents.files.get(member.link.removeprefix("./"), b"")
        case b"5":
            contents.children.setdefault(path, set())
        case b"0" | b"\0":
            contents.files[path] = content
            contents.modes[path] = member.mode


@dataclass(frozen=True, slots=True)
class _Member:
    name: str
    kind: bytes
    mode: int
    link: str
    size: int


def _members(stream: _Stream) -> Iterator[_Member]:
    """Each member, long names of GNU and pax headers joined in; its content is next in the stream."""
    extra: dict[str, str] = {}
    while len(header := stream.take(_BLOCK)) == _BLOCK and header[0]:
        kind, size = header[156:157], _number(header[124:136], stream.position)
        if kind in (b"L", b"K", b"x", b"g"):
            extra |= _extra(kind, _content(stream, size))
            continue
        name = extra.get("path") or _name(header)
        link = extra.get("linkpath") or _text(header[157:257])
        yield _Member(name, kind, _number(header[100:108], stream.position), link, size)
        extra = {}
    if len(header) < _BLOCK and header.strip(b"\0"):
        raise ArchiveError("it ends in the middle of a header")


def _content(stream: _Stream, size: int) -> bytes:
    if size > MAX_FILE:
        raise ArchiveError("a name in it is longer than a MiB")
    content = stream.take(size)
    stream.skip(-(-size // _BLOCK) * _BLOCK - len(content))
    return content


def _extra(kind: bytes, content: bytes) -> dict[str, str]:
    if kind == b"x":
        return _pax(content)
    return {b"L": {"path": _text(content)}, b"K": {"linkpath": _text(content)}}.get(kind, {})


def _name(header: bytes) -> str:
    name, prefix = _text(header[:100]), _text(header[345:500])
    return f"{prefix}/{name}" if prefix and header[257:263] == b"ustar\0" else name


def _text(raw: bytes) -> str:
    return raw.partition(b"\0")[0].decode("utf-8", "replace")


def _number(raw: bytes, offset: int) -> int:
    """Octal, or GNU's base 256 for what octal cannot hold."""
    if raw[0] & 0x80:
        return int.from_bytes(raw, "big") & ~(0x80 << 8 * (len(raw) - 1))
    try:
        return int(raw.rstrip(b" \0") or b"0", 8)
    except ValueError:
        raise ArchiveError(f"no tar header before byte {offset}") from None


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
