"""A kubelet's podresources socket: a real gRPC server with answers that a test scripts."""

from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from support.protobuf import encode


class Handler(grpc.GenericRpcHandler):
    def __init__(self, answers: dict[str, Any]) -> None:
        self.answers = answers

    def service(self, details: Any) -> grpc.RpcMethodHandler | None:
        service, _, method = details.method.lstrip("/").partition("/")
        answer = self.answers.get(method)
        if service != "v1.PodResourcesLister" or answer is None:
            return None
        respond = answer if callable(answer) else lambda _request, _context: encode(self.answers[method])
        return grpc.unary_unary_rpc_method_handler(respond)


@contextmanager
def serving(path: Path, **answers: Any) -> Iterator[Path]:
    """Serve at a path; an answer is a message by field numbers, or a function of request and context."""
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((Handler(answers),))
    server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield path
    finally:
        server.stop(0).wait()


def static(allocatable: list[int], **pods: dict[str, list[int]]) -> dict[str, Any]:
    """Answers of a kubelet with policy static; `pods` of namespace default have CPUs by container."""
    listed = [
        {1: name, 2: "default", 3: [{1: container, 3: cpus} for container, cpus in containers.items()]}
        for name, containers in pods.items()
    ]
    return {"List": {1: listed}, "GetAllocatableResources": {2: allocatable}}
