"""An NRI socket whose runtime does what a test says, in bytes of its own. Calls block: use threads."""

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support import nri_wire
from support.nri_wire import PLUGIN, RUNTIME, payload, status
from support.protobuf import decode

CONTAINERD_1_7 = {2: "containerd", 3: "1.7.24"}
SECONDS = 120


class PluginAtRuntime:
    """One plugin that connected, seen from the runtime."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.reader, self.stream = connection, nri_wire.Reader(), -1
        self.received: list[tuple[int, int, int, dict]] = []
        self.name = b""

    def register(self, configure: dict = CONTAINERD_1_7) -> None:
        """Take the registration, and configure the plugin."""
        _, stream, _, envelope = self.expect(RUNTIME)
        assert envelope[2] == [b"RegisterPlugin"]
        request = decode(envelope[3][0])
        self.name = request[2][0] + b"-" + request[1][0]
        self.connection.sendall(nri_wire.response(stream, {}))
        self.call("Configure", configure)

    def ready(
        self, pods: list[dict] = (), containers: list[dict] = (), configure: dict = CONTAINERD_1_7
    ) -> dict:
        """Register, configure and synchronize; the answer to the last."""
        self.register(configure)
        return self.call("Synchronize", {1: list(pods), 2: list(containers)})

    def call(self, method: str, body: dict) -> dict:
        """The answer to a call, which has to be a success."""
        return self.wait(self.send(method, body))

    def create(self, ident: str, uid: str = "u1") -> dict:
        return self.call("CreateContainer", {1: nri_wire.pod(uid), 2: nri_wire.container(ident, uid)})

    def timed_create(self, ident: str) -> tuple[dict, float]:
        """The answer to CreateContainer and how long it took, in seconds."""
        start = time.monotonic()
        return self.create(ident), time.monotonic() - start

    def send(self, method: str, body: dict) -> int:
        self.stream += 2
        self.connection.sendall(nri_wire.request(self.stream, method, body))
        return self.stream

    def wait(self, stream: int) -> dict:
        _, _, kind, envelope = self.expect(PLUGIN, stream)
        assert (kind, status(envelope)) == (2, 0)
        return payload(envelope, 2)

    def expect(self, connection: int, stream: int = 0) -> tuple[int, int, int, dict]:
        """The next message on a connection, of a stream if one is given."""
        while True:
            for message in self.received:
                if message[0] == connection and stream in (0, message[1]):
                    self.received.remove(message)
                    return message
            data = self.connection.recv(1 << 16)
            if not data:
                raise ConnectionError("the plugin closed the connection")
            self.received += self.reader.feed(data)

    def is_closed(self) -> bool:
        """Whether the plugin closes the connection; waits for it."""
        while data := self.connection.recv(1 << 16):
            self.received += self.reader.feed(data)
        return True

    def close(self) -> None:
        self.connection.close()


class FakeNRI:
    """A runtime's NRI socket."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        self.plugins: list[PluginAtRuntime] = []

    def accept(self, seconds: float = SECONDS) -> PluginAtRuntime:
        """The next plugin that connects. Raises TimeoutError."""
        self.listener.settimeout(seconds)
        connection, _ = self.listener.accept()
        connection.settimeout(SECONDS)
        self.plugins.append(PluginAtRuntime(connection))
        return self.plugins[-1]

    def close(self) -> None:
        """End as a runtime that is killed: every connection and the socket are gone."""
        self.listener.close()
        self.path.unlink(missing_ok=True)
        for plugin in self.plugins:
            plugin.close()


@contextmanager
def listening(path: Path) -> Iterator[FakeNRI]:
    fake = FakeNRI(path)
    try:
        yield fake
    finally:
        fake.close()
