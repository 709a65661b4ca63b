"""A container runtime's socket that answers what a test says, in bytes of its own.

An answer is a message, a function that makes one, or a `Stream` of messages.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from support import grpc_server
from support.grpc_server import Context
from support.protobuf import encode, strings


@dataclass
class Stream:
    """Messages in the order in which an iterator yields them; `make` is called for each listener."""

    make: Callable[[bytes, Context], Iterator[dict]]


Answer = dict | Stream | Callable[[bytes, Context], bytes]
SERVICES = ("runtime.v1.RuntimeService", "containerd.services.events.v1.Events")
RUNTIME = {1: "0.1.0", 2: "fake", 3: "1.0", 4: "v1"}


@contextmanager
def serving(path: Path, answers: dict[str, Answer]) -> Iterator[str]:
    """The endpoint of a runtime; methods that `answers` does not name are unimplemented."""
    methods = {method: _respond(answer) for method, answer in {"Version": RUNTIME, **answers}.items()}
    paths = {f"{service}/{method}": respond for service in SERVICES for method, respond in methods.items()}
    with grpc_server.serving(path, paths):
        yield f"unix://{path}"


def _respond(answer: Answer) -> grpc_server.Answer:
    if isinstance(answer, Stream):
        return lambda request, context: map(encode, answer.make(request, context))
    return answer if callable(answer) else lambda _request, _context: encode(answer)


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
