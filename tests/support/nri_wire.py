"""The runtime's end of an NRI connection in bytes of its own: multiplexer, ttrpc, messages by number."""

import struct

from support.protobuf import decode, encode, strings

SERVICE = "nri.pkg.api.v1alpha1.Plugin"
PLUGIN, RUNTIME = 1, 2


def frame(connection: int, data: bytes) -> bytes:
    return struct.pack(">II", connection, len(data)) + data


def ttrpc(stream: int, kind: int, data: bytes, flags: int = 0) -> bytes:
    return struct.pack(">IIBB", len(data), stream, kind, flags) + data


def request(stream: int, method: str, body: dict, *, service: str = SERVICE, timeout_ns: int = 0) -> bytes:
    """A call of the plugin as containerd sends it."""
    envelope = {1: service, 2: method, 3: encode(body)} | ({4: timeout_ns} if timeout_ns else {})
    return frame(PLUGIN, ttrpc(stream, 1, encode(envelope)))


def response(stream: int, body: dict, code: int = 0, message: str = "") -> bytes:
    """The answer to a call that the plugin made."""
    status = {1: {1: code, 2: message}} if code else {}
    return frame(RUNTIME, ttrpc(stream, 2, encode(status | {2: encode(body)})))


class Reader:
    """What the plugin sent, as (connection, stream, type, envelope)."""

    def __init__(self) -> None:
        self.trunk, self.streams = b"", {PLUGIN: b"", RUNTIME: b""}

    def feed(self, data: bytes) -> list[tuple[int, int, int, dict]]:
        self.trunk += data
        while len(self.trunk) >= 8:
            connection, length = struct.unpack(">II", self.trunk[:8])
            assert length <= 4096, "containerd's reader has a buffer of 4096 bytes"
            if len(self.trunk) < 8 + length:
                break
            self.streams[connection] += self.trunk[8 : 8 + length]
            self.trunk = self.trunk[8 + length :]
        return [message for connection in self.streams for message in self._messages(connection)]

    def _messages(self, connection: int) -> list[tuple[int, int, int, dict]]:
        messages, data = [], self.streams[connection]
        while len(data) >= 10:
            length, stream, kind, flags = struct.unpack(">IIBB", data[:10])
            assert flags == 0
            if len(data) < 10 + length:
                break
            messages.append((connection, stream, kind, decode(data[10 : 10 + length])))
            data = data[10 + length :]
        self.streams[connection] = data
        return messages


def payload(envelope: dict, number: int) -> dict:
    """The message in an envelope; empty where it is left out."""
    return decode(envelope.get(number, [b""])[0])


def status(envelope: dict) -> int:
    """The code of a response; 0 is success."""
    return payload(envelope, 1).get(1, [0])[0]


def pod(uid: str, name: str = "web", ident: str = "") -> dict:
    """A PodSandbox."""
    labels = {"io.kubernetes.pod.uid": uid, "app": name}
    return {
        1: ident or f"sandbox-{uid}",
        2: name,
        3: uid,
        4: "default",
        5: strings(labels),
        6: strings({"note": "of the pod"}),
        7: "runc",
        8: {3: f"/kubepods/pod{uid}"},
        9: 17,
    }


def container(
    ident: str, uid: str, name: str = "main", *, state: int = 1, cpus: str = "", shares: int = 2
) -> dict:
    """A Container with fields that corelane does not read as well."""
    labels = {
        "io.kubernetes.pod.uid": uid,
        "io.kubernetes.pod.name": "web",
        "io.kubernetes.pod.namespace": "default",
        "io.kubernetes.container.name": name,
    }
    resources = {1: {1: {1: 1 << 30}}, 2: {1: {1: shares}, 2: {1: -1}, 3: {1: 100_000}, 6: cpus}}
    return {
        1: ident,
        2: f"sandbox-{uid}",
        3: name,
        4: state,
        5: strings(labels),
        6: strings({"io.kubernetes.cri.container-type": "container"}),
        7: ["/bin/server", "--port=80"],
        8: ["PATH=/bin"],
        9: [{1: "/etc", 2: "bind"}],
        11: {3: resources, 5: f"/kubepods/pod{uid}/{ident}"},
        12: 0,
        14: 1 << 60,
    }


def resources(update: bytes) -> dict:
    """`linux.resources.cpu` of a ContainerUpdate or ContainerAdjustment (field 2 or 6): names to values."""
    message = decode(update)
    outer = 2 if 2 in message else 6
    linux = decode(message[outer][0])
    cpu = decode(decode(linux[1 if outer == 2 else 2][0])[2][0])
    numbers = {
        name: _signed(decode(cpu[field][0]).get(1, [0])[0])
        for name, field in _NUMBERS.items()
        if field in cpu
    }
    texts = {name: cpu[field][0].decode() for name, field in _TEXTS.items() if field in cpu}
    return numbers | texts


_NUMBERS = {"shares": 1, "quota": 2, "period": 3}
_TEXTS = {"cpus": 6, "mems": 7}


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
