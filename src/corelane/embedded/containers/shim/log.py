"""A container's log, as the shim writes it."""
# ruff: noqa: PTH102, PTH104, PTH112, PTH120, SIM105

import os
import time

LONGEST_LINE = 16384  # CRI: longer lines are written in parts
DIRECTORIES = 3  # logs/POD/CONTAINER: what lies above them is not ours to make


class Log:
    """A log in CRI's format, `TIME STREAM F|P TEXT`, moved aside to .1, .2 … when it has grown to its size.

    A full disk loses lines, never the container.
    """

    def __init__(self, path: str, max_bytes: int, max_files: int) -> None:
        self.path, self.max_bytes, self.max_files = path, max_bytes, max_files
        self.rest = {"stdout": b"", "stderr": b""}
        self.file = self._open()

    def _open(self) -> int:
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self.size = os.fstat(file).st_size
        return file

    def feed(self, stream: str, data: bytes) -> None:
        """Log every line that `data` completes."""
        *lines, rest = (self.rest[stream] + data).split(b"\n")
        whole = len(rest) - len(rest) % LONGEST_LINE
        self.rest[stream] = rest[whole:]
        head = _head(stream)
        records = [record for line in lines for record in _records(head, line, b"F")]
        self._write(records + _records(head, rest[:whole], b"P") if whole else records)

    def finish(self) -> None:
        """Log what came without a newline at its end."""
        for stream, rest in self.rest.items():
            self._write(_records(_head(stream), rest, b"P") if rest else [])

    def _write(self, records: list[bytes]) -> None:
        if not records:
            return
        if self.size >= self.max_bytes:
            self._rotate()
        elif not os.fstat(self.file).st_nlink:
            self._reopen()
        try:
            self.size += os.write(self.file, b"".join(records))
        except OSError:
            pass

    def _rotate(self) -> None:
        """Go on in a new file; in the old one, should that fail, until it has grown as much again."""
        self.size = 0
        old = self.file
        try:
            for number in range(self.max_files - 1, 0, -1):
                self._move(f".{number - 1}" if number > 1 else "", f".{number}")
            self.file = self._open()
        except OSError:
            return
        os.close(old)

    def _reopen(self) -> None:
        """Go on in a new file where the log was deleted; in the old one if the data directory was, too."""
        old = self.file
        missing: list[str] = []
        directory = os.path.dirname(self.path)
        while not os.path.isdir(directory) and len(missing) < DIRECTORIES:
            missing.append(directory)
            directory = os.path.dirname(directory)
        try:
            for path in reversed(missing):
                os.mkdir(path, 0o700)
            self.file = self._open()
        except OSError:
            return
        os.close(old)

    def _move(self, old: str, new: str) -> None:
        try:
            os.rename(self.path + old, self.path + new)
        except FileNotFoundError:
            pass


def _head(stream: str) -> bytes:
    """What a record written now begins with."""
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))
    return f"{moment}.{nanoseconds:09}Z {stream} ".encode()


def _records(head: bytes, line: bytes, tag: bytes) -> list[bytes]:
    """One line as records; all but the last are partial."""
    parts = [line[start : start + LONGEST_LINE] for start in range(0, len(line), LONGEST_LINE)] or [b""]
    return [head + b"P " + part + b"\n" for part in parts[:-1]] + [head + tag + b" " + parts[-1] + b"\n"]
