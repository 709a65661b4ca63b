"""What watches cost while nothing happens: CPU time of the server's process, and what vanished clients leave.

The bounds are generous: a watch that does not sleep takes a whole core, a hundred that sleep next to nothing.
"""

from __future__ import annotations

import itertools
import os
import socket
import ssl
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.embedded import TOKEN

pytestmark = pytest.mark.system

PAST_BOOKMARKS = 63.0
"""Seconds after which the first bookmarks of every watch have come."""
MEASURED = 15.0
CORE_SHARE = 0.05
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
METADATA = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"
PATHS = ("/api/v1/pods", "/api/v1/namespaces/default/events", "/api/v1/nodes", "/api/v1/watch/configmaps")
QUERIES = (
    "watch=1",
    "watch=1&resourceVersion=0",
    "watch=1&timeoutSeconds=600",
    "watch=1&allowWatchBookmarks=true",
    "watch=1&allowWatchBookmarks=true&timeoutSeconds=600",
    "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    "watch=1&labelSelector=a%3Db",
)
ACCEPTS = ("application/json", TABLE, METADATA)
_TCP_REPAIR = 19


@dataclass(frozen=True, slots=True)
class Server:
    """A server's process."""

    pid: int
    port: int
    directory: Path

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def sockets(self) -> int:
        found = 0
        for entry in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += str(entry.readlink()).startswith("socket:")
        return found

    def watch(self, path: str, accept: str) -> ssl.SSLSocket:
        context = ssl.create_default_context(cafile=self.directory / "ca.crt")
        plain = socket.create_connection(("127.0.0.1", self.port), 10)
        found = context.wrap_socket(plain, server_hostname="127.0.0.1")
        lines = (f"GET {path} HTTP/1.1", "Host: x", f"Authorization: Bearer {TOKEN}", f"Accept: {accept}")
        found.sendall("\r\n".join([*lines, "", ""]).encode())
        assert found.recv(65536).startswith(b"HTTP/1.1 200"), path
        return found


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def running(directory: Path) -> Iterator[Server]:
    port = free_port()
    program = Path(__file__).parents[1] / "support" / "server_process.py"
    process = subprocess.Popen([sys.executable, str(program), str(directory), str(port)])
    try:
        deadline = time.monotonic() + 20
        while True:
            assert process.poll() is None and time.monotonic() < deadline, "the server did not start"
            with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.1)
        yield Server(process.pid, port, directory)
    finally:
        process.terminate()
        process.wait(20)


def close(held: ssl.SSLSocket) -> None:
    held.close()


def reset(held: ssl.SSLSocket) -> None:
    held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    held.close()


def half_close(held: ssl.SSLSocket) -> None:
    held.shutdown(socket.SHUT_WR)


def vanish(held: ssl.SSLSocket) -> None:
    """Close without a word: the kernel forgets the connection and sends nothing."""
    with suppress(PermissionError):  # without CAP_NET_ADMIN it closes as usual
        held.setsockopt(socket.IPPROTO_TCP, _TCP_REPAIR, 1)
    held.close()


def test_idle_watches_and_vanished_clients_cost_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        time.sleep(1)  # the connection that found it listening is closed
        before = server.sockets()
        kinds = [(f"{path}?{query}", accept) for path in PATHS for query in QUERIES for accept in ACCEPTS]
        live = [server.watch(path, accept) for path, accept in kinds]
        leaving = itertools.cycle((close, reset, half_close, vanish))
        left = [server.watch(path, accept) for path, accept in kinds]
        for leave, held in zip(leaving, left, strict=False):
            leave(held)
        time.sleep(PAST_BOOKMARKS)

        begun, since = server.cpu_seconds(), time.monotonic()
        time.sleep(MEASURED)
        share = (server.cpu_seconds() - begun) / (time.monotonic() - since)
        assert share < CORE_SHARE, f"{len(live)} idle watches take {share:.1%} of a core"
        remaining = server.sockets() - before
        assert remaining == len(live), f"{remaining} connections for {len(live)} clients"
        for held in left + live:
            held.close()
