"""A kubelet's podresources socket: a real gRPC server with answers that a test scripts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support import grpc_server
from support.protobuf import encode


@contextmanager
def serving(path: Path, **answers: Any) -> Iterator[Path]:
    """Serve at a path; an answer is a message by field numbers, or a function of request and context."""
    methods = {f"v1.PodResourcesLister/{method}": _respond(answer) for method, answer in answers.items()}
    with grpc_server.serving(path, methods):
        yield path


def _respond(answer: Any) -> grpc_server.Answer:
    return answer if callable(answer) else lambda _request, _context: encode(answer)


def static(allocatable: list[int], **pods: dict[str, list[int]]) -> dict[str, Any]:
    """Answers of a kubelet with policy static; `pods` of namespace default have CPUs by container."""
    listed = [
        {1: name, 2: "default", 3: [{1: container, 3: cpus} for container, cpus in containers.items()]}
        for name, containers in pods.items()
    ]
    return {"List": {1: listed}, "GetAllocatableResources": {2: allocatable}}
