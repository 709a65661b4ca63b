"""Container logs as they lie on disk (CRI: `TIME STREAM F|P TEXT`), read as `kubectl logs` shows them.

A log that was moved aside goes on as PATH.1, PATH.2 …, the highest number being the oldest; readers see one
stream.
"""

import asyncio
import mmap
import os
import re
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from corelane.runtime.base import LogSelection

_CHUNK = 1 << 18
_HEAD = 64
_POLL_SECONDS = 0.1
_RECORD = re.compile(rb"(\S+) (stdout|stderr) ([FP])(?: (.*))?", re.DOTALL)


async def stream(path: Path, ended: Callable[[], bool], choice: LogSelection) -> AsyncIterator[bytes]:
    """The log's text in pieces, until `ended` returns true and all is read."""
    reader = await asyncio.to_thread(_Reader, path, choice)
    try:
        while not reader.full:
            last = ended()
            if data := await asyncio.to_thread(reader.read):
                yield data
            elif last:
                return
            else:
                await asyncio.sleep(_POLL_SECONDS)
    finally:
        reader.close()


def _files(path: Path) -> list[Path]:
    """The log and what was moved aside of it, the oldest first."""
    aside = [file for file in path.parent.glob(f"{path.name}.*") if file.suffix[1:].isdigit()]
    return [*sorted(aside, key=lambda file: -int(file.suffix[1:])), path]


class _Reader:
    """Reads on from where it is, across files that are moved aside meanwhile."""

    def __init__(self, path: Path, choice: LogSelection) -> None:
        self.path = path
        self.file: BinaryIO | None = None
        self.rest = b""
        self.text = _Text(choice)
        self._seek(choice.tail_lines)

    @property
    def full(self) -> bool:
        """Whether all that was asked for has been read."""
        return self.text.left == 0

    def _seek(self, missing: int | None) -> None:
        """Open the file in which the last `missing` lines begin, there; None begins with the oldest."""
        for path in reversed(_files(self.path)):
            if not self._open(path) or self.file is None or missing is None:
                continue
            missing -= _seek_back(self.file, missing)
            if missing == 0:
                return

    def _open(self, path: Path) -> bool:
        try:
            file = path.open("rb")
        except (FileNotFoundError, IsADirectoryError):
            return False
        self.close()
        self.file, self.rest = file, b""
        return True

    def read(self) -> bytes:
        """What there is to say now, at most a chunk; empty once everything that is there was read."""
        while not self.full:
            successor = (
                self._successor()
            )  # looked for first: once there is one, nothing is added to this file
            data = self.file.read(_CHUNK) if self.file else b""
            *records, self.rest = (self.rest + data).split(b"\n")
            if text := self.text.of(records):
                return text
            if not data and not (successor and self._open(successor)):
                return b""
        return b""

    def _successor(self) -> Path | None:
        """The file that follows the open one."""
        files = _files(self.path)
        place = next((place for place, path in enumerate(files) if self._is_open(path)), -1)
        return next((path for path in files[place + 1 :] if path.exists()), None)

    def _is_open(self, path: Path) -> bool:
        if self.file is None:
            return False
        try:
            return os.path.samestat(path.stat(), os.fstat(self.file.fileno()))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        if self.file:
            self.file.close()
            self.file = None


def _seek_back(file: BinaryIO, lines: int) -> int:
    """Put the file's position where its last `lines` lines begin; how many there are, if fewer."""
    if not os.fstat(file.fileno()).st_size:
        return 0
    with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        end = position = text.rfind(b"\n") + 1
        seen = 0
        while position:
            begin = text.rfind(b"\n", 0, position - 1) + 1
            if position == end or _ends_line(text[begin : begin + _HEAD]):
                if seen == lines:
                    break
                seen += 1
            position = begin
        file.seek(position)
    return seen


def _ends_line(record: bytes) -> bool:
    """Whether a record is not the part of a line that goes on."""
    return record.split(b" ", 3)[2:3] != [b"P"]


class _Text:
    """Turns records into what is shown: those since a moment, with or without times, up to so many bytes."""

    def __init__(self, choice: LogSelection) -> None:
        self.since = b"" if choice.since is None else _moment(choice.since)
        self.timestamps = choice.timestamps
        self.left = choice.limit_bytes
        self.unfinished: set[bytes] = set()

    def of(self, records: list[bytes]) -> bytes:
        text = b"".join(map(self._show, records))
        if self.left is None:
            return text
        text = text[: self.left]
        self.left -= len(text)
        return text

    def _show(self, record: bytes) -> bytes:
        match = _RECORD.fullmatch(record)
        if match is None:
            return record + b"\n"
        moment, origin, tag, line = match.groups(default=b"")
        if moment < self.since:
            return b""
        head = moment + b" " if self.timestamps and origin not in self.unfinished else b""
        (self.unfinished.add if tag == b"P" else self.unfinished.discard)(origin)
        return head + line + (b"" if tag == b"P" else b"\n")


def _moment(seconds: float) -> bytes:
    """A time as the log writes it; as all are in UTC and of one length, they compare as text."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S.%f}000Z".encode()
