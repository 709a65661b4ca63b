"""The kubelet's podresources API over its socket: exclusive CPUs, and faults with their remedy."""

import asyncio
import threading

import pytest

from corelane.cpuset import CPUSet
from corelane.runtime.podresources import NoSocket, PodResourcesClient, PodResourcesError
from support.podresources_server import serving
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


def asking(path, call, seconds=60.0):
    async def scenario():
        client = PodResourcesClient(path, seconds)
        try:
            return await call(client)
        finally:
            await client.close()

    return asyncio.run(scenario())


def test_exclusive_cpus_are_listed_by_container(tmp_path):
    with serving(tmp_path / "s", List=PODS) as path:
        web, bubble = asking(path, lambda client: client.list())
    assert (web.namespace, web.name) == ("default", "web")
    assert web.containers == {"main": CPUSet.parse("2-3")}
    assert bubble.containers == {}
    assert bubble.cpus == CPUSet.parse("4-5")


def test_allocatable_cpus_are_read_beside_devices(tmp_path):
    answer = {1: [{1: "example.com/nic", 2: ["eth0"]}, {1: "example.com/nic", 2: ["eth1"]}], 2: [1, 2, 3]}
    with serving(tmp_path / "s", GetAllocatableResources=answer) as path:
        assert asking(path, lambda client: client.allocatable()) == CPUSet.parse("1-3")


def failing(path, seconds=60.0):
    with pytest.raises(PodResourcesError) as caught:
        asking(path, lambda client: client.list(), seconds)
    return caught.value


def test_a_missing_socket_is_named(tmp_path):
    error = failing(tmp_path / "missing.sock")
    assert isinstance(error, NoSocket)
    assert "missing.sock: No such file or directory; check that the kubelet runs" in str(error)


def test_a_kubelet_without_the_api_is_reported(tmp_path):
    with serving(tmp_path / "s") as path:
        assert failing(path).code == "UNIMPLEMENTED"


def test_a_slow_kubelet_is_given_up_at_the_deadline(tmp_path):
    given_up = threading.Event()

    def slow(_request, _context):
        given_up.wait(60)
        return encode(PODS)

    with serving(tmp_path / "s", List=slow) as path:
        error = failing(path, 0.5)
        given_up.set()
    assert error.code == "DEADLINE_EXCEEDED"
    assert "check the load of the kubelet" in str(error)


@pytest.mark.parametrize("cpu", [-1, 1 << 62])
def test_an_impossible_cpu_id_is_an_error(tmp_path, cpu):
    with serving(tmp_path / "s", List={1: [{1: "web", 3: [{1: "main", 3: [cpu]}]}]}) as path:
        assert "is not a CPU id" in str(failing(path))
