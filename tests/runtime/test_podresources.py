"""The kubelet's podresources API over its socket: exclusive CPUs, devices, and faults with their remedy."""

import asyncio
import time
from concurrent import futures
from contextlib import contextmanager

import grpc
import pytest

from corelane.cpuset import CPUSet
from corelane.runtime.podresources import AllocatableResources, PodResourcesClient, PodResourcesError
from support.protobuf import encode

PODS = {
    1: [
        {
            1: "web",
            2: "default",
            3: [
                {1: "main", 2: [{1: "example.com/nic", 2: ["eth0", "eth1"]}], 3: [3, 2]},
                {1: "shared"},
            ],
        },
        {1: "bubble", 2: "default", 3: [{1: "main"}], 4: [4, 5]},
    ]
}


class Handler(grpc.GenericRpcHandler):
    def __init__(self, answers):
        self.answers = answers

    def service(self, details):
        service, _, method = details.method.lstrip("/").partition("/")
        answer = self.answers.get(method)
        if service != "v1.PodResourcesLister" or answer is None:
            return None
        respond = answer if callable(answer) else lambda _request, _context: encode(answer)
        return grpc.unary_unary_rpc_method_handler(respond)


@contextmanager
def serving(path, **answers):
    server = grpc.server(futures.ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((Handler(answers),))
    server.add_insecure_port(f"unix://{path}")
    server.start()
    try:
        yield path
    finally:
        server.stop(0).wait()


def asking(path, call, seconds=5.0):
    async def scenario():
        client = PodResourcesClient(path, seconds)
        try:
            return await call(client)
        finally:
            await client.close()

    return asyncio.run(scenario())


def test_exclusive_cpus_and_devices_are_listed_by_container(tmp_path):
    with serving(tmp_path / "s", List=PODS) as path:
        web, bubble = asking(path, lambda client: client.list())
    assert (web.namespace, web.name) == ("default", "web")
    assert web.containers == {"main": CPUSet.parse("2-3")}
    assert web.devices == {"main": {"example.com/nic": ("eth0", "eth1")}}
    assert bubble.containers == {}
    assert bubble.cpus == CPUSet.parse("4-5")


def test_allocatable_cpus_and_devices_are_read(tmp_path):
    answer = {1: [{1: "example.com/nic", 2: ["eth0"]}, {1: "example.com/nic", 2: ["eth1"]}], 2: [1, 2, 3]}
    with serving(tmp_path / "s", GetAllocatableResources=answer) as path:
        resources = asking(path, lambda client: client.allocatable())
    assert resources == AllocatableResources(CPUSet.parse("1-3"), {"example.com/nic": ("eth0", "eth1")})


def failing(path, seconds=5.0):
    with pytest.raises(PodResourcesError) as caught:
        asking(path, lambda client: client.list(), seconds)
    return caught.value


def test_a_missing_socket_is_named(tmp_path):
    error = failing(tmp_path / "missing.sock")
    assert "missing.sock: No such file or directory; check that the kubelet runs" in str(error)


def test_a_kubelet_without_the_api_is_reported(tmp_path):
    with serving(tmp_path / "s") as path:
        assert failing(path).code == "UNIMPLEMENTED"


def test_a_slow_kubelet_is_given_up_at_the_deadline(tmp_path):
    def slow(_request, _context):
        time.sleep(3)
        return encode(PODS)

    with serving(tmp_path / "s", List=slow) as path:
        error = failing(path, 0.5)
    assert error.code == "DEADLINE_EXCEEDED"
    assert "check the load of the kubelet" in str(error)


@pytest.mark.parametrize("cpu", [-1, 1 << 62])
def test_an_impossible_cpu_id_is_an_error(tmp_path, cpu):
    with serving(tmp_path / "s", List={1: [{1: "web", 3: [{1: "main", 3: [cpu]}]}]}) as path:
        assert "is not a CPU id" in str(failing(path))
