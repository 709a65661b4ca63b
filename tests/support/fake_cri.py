"""A container runtime's socket that answers what a test says, in bytes of its own.

An answer is a message, a function that makes one, or a `Stream` of messages.
"""

from collections.abc import Callable, Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from support.protobuf import encode, strings


@dataclass
class Stream:
    """Messages in the order in which an iterator yields them; `make` is called for each listener."""

    make: Callable[[bytes, grpc.ServicerContext], Iterator[dict]]


Answer = dict | Stream | Callable[[bytes, grpc.ServicerContext], bytes]
SERVICES = ("runtime.v1.RuntimeService", "containerd.services.events.v1.Events")
RUNTIME = {1: "0.1.0", 2: "fake", 3: "1.0", 4: "v1"}


@contextmanager
def serving(path: Path, answers: dict[str, Answer]) -> Iterator[str]:
    """The endpoint of a runtime; methods that `answers` does not name are unimplemented."""
    server = grpc.server(
        futures.ThreadPoolExecutor(16),
        options=[("grpc.max_send_message_length", -1), ("grpc.so_reuseport", 0)],
    )
    server.add_generic_rpc_handlers((_Handler({"Version": RUNTIME, **answers}),))
    assert server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield f"unix://{path}"
    finally:
        server.stop(0).wait()


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, answers: dict[str, Answer]) -> None:
        self.answers = answers

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        service, _, method = details.method.lstrip("/").partition("/")
        answer = self.answers.get(method)
        if service not in SERVICES or answer is None:
            return None
        if isinstance(answer, Stream):
            return grpc.unary_stream_rpc_method_handler(
                lambda request, context: map(encode, answer.make(request, context))
            )
        respond = answer if callable(answer) else lambda _request, _context: encode(answer)
        return grpc.unary_unary_rpc_method_handler(respond)


def sandbox(ident: str, uid: str, name: str, *, ready: bool = True, labels: bool = True) -> dict:
    """A PodSandbox; without labels only its metadata names the pod."""
    named = {"name": name, "namespace": "default", "uid": uid}
    said = strings({f"io.kubernetes.pod.{key}": value for key, value in named.items()}) if labels else []
    return {1: ident, 2: {1: name, 2: uid, 3: "default"}, 3: int(not ready), 5: said}


def container(ident: str, of: str, name: str, *, state: int = 1, image: str = "image") -> dict:
    """A Container with fields that corelane does not read as well."""
    labels = strings({"io.kubernetes.container.name": name})
    return {1: ident, 2: of, 3: {1: name, 2: 3}, 4: {1: image}, 5: image, 6: state, 7: 1 << 60, 8: labels}


def linux(shares: int, cpus: str = "", quota: int = -1) -> dict:
    """A ContainerStatusResponse whose status has resources."""
    return {1: {1: "id", 16: {1: {1: 100_000, 2: quota, 3: shares, 6: cpus}}}}
