"""A real kubectl applies stories of `examples/stories/` to `corelane up`: which nodes and CPUs pods get."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from corelane.cpuset import CPUSet
from support import kubectl as program
from support import stories
from support.kubectl import Kubectl
from support.up import up

pytestmark = pytest.mark.system

STATUS = "scheduling.koordinator.sh/resource-status"
PER_CONTAINER = "corelane.io/container-cpusets"


@contextmanager
def cluster(directory: Path, machine: str, nodes: int) -> Iterator[Kubectl]:
    found = program.find()
    if found is None:
        pytest.skip(program.MISSING)
    arguments = ("--node-name", "here", "--nodes", str(nodes), "--machine", machine)
    with up(directory / "data", *arguments) as running:
        yield Kubectl(*found, dict(os.environ) | {"KUBECONFIG": str(running.kubeconfig)})


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("two"), "socket:2 core:4 smt:2", 2) as kubectl:
        yield kubectl


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    with cluster(tmp_path_factory.mktemp("one"), "socket:2 core:8 smt:2", 1) as kubectl:
        yield kubectl


@contextmanager
def told(kubectl: Kubectl, name: str, *waiting: str) -> Iterator[dict[str, dict[str, object]]]:
    """The pods of a story by name, once all but those `waiting` run; they are gone afterwards."""
    kubectl("apply", "-f", str(stories.path(name)))
    ready = [f"pod/{pod.metadata.name}" for pod in stories.pods(name) if pod.metadata.name not in waiting]
    try:
        if ready:
            kubectl("wait", "--for=condition=Ready", *ready, "--timeout=30s")
        yield {pod["metadata"]["name"]: pod for pod in kubectl.json("get", "pods")["items"]}
    finally:
        kubectl("delete", "-f", str(stories.path(name)), "--timeout=30s", "--ignore-not-found")


def cpus(pod: dict[str, dict[str, object]], container: str = "") -> CPUSet:
    annotations = pod["metadata"]["annotations"]
    assert isinstance(annotations, dict)
    if container and PER_CONTAINER in annotations:
        return CPUSet.parse(json.loads(annotations[PER_CONTAINER])[container])
    return CPUSet.parse(json.loads(annotations[STATUS])["cpuset"])


def until_published(kubectl: Kubectl, setting: str) -> None:
    """The agent takes a label in and publishes it; then the scheduler knows."""
    deadline = time.monotonic() + 20
    while True:
        published = kubectl.json("get", "noderesourcetopologies", "sim-1")["metadata"]["annotations"]
        if setting in published["corelane.io/cpu-allocations"]:
            return
        assert time.monotonic() < deadline, f"{setting} was never published"
        time.sleep(0.2)


def test_labels_of_a_node_stand_for_its_kubelets_options(two: Kubectl) -> None:
    for command in stories.commands("1-kubelet-options"):
        if command[:2] == ["kubectl", "label"]:
            two(*command[1:])
    two("cordon", "sim-2")
    try:
        until_published(two, '"node_bind":"FullPCPUs"')
        with told(two, "1-kubelet-options", "odd") as pods:
            assert str(cpus(pods["wide"])) == "1-6,9-14"
            why = two("describe", "pod", "odd").stdout
            assert "requested cpus not multiple cpus per core" in why
    finally:
        two("uncordon", "sim-2")
        for label in ("cpu-bind-policy", "numa-allocate-strategy"):
            two("label", "node", "sim-1", f"node.koordinator.sh/{label}-")
        until_published(two, '"node_bind":null')


def test_a_pod_goes_to_the_node_with_a_numa_node_for_it(two: Kubectl) -> None:
    with told(two, "3-numa-alignment") as pods:
        where = {name: pod["spec"]["nodeName"] for name, pod in pods.items()}
    assert where == {"left": "sim-1", "right": "sim-1", "engine": "sim-2", "bystander": "sim-1"}


def test_some_pack_numa_nodes_and_others_take_the_emptiest(one: Kubectl) -> None:
    first = CPUSet.parse("0-7,16-23")
    with told(one, "5-numa-strategy") as pods:
        assert {name: cpus(pod) <= first for name, pod in pods.items()} == {
            "pack-1": True, "pack-2": True, "pack-3": True, "calm-1": False, "calm-2": False,
        }  # fmt: skip


def test_a_large_pod_fits_after_others_came_and_went(one: Kubectl) -> None:
    with told(one, "6-fragmentation") as pods:
        assert len(cpus(pods["analytics"])) == 12
        one("delete", "pod", "web-1", "--timeout=20s")


def test_trading_shares_no_core_with_anybody(one: Kubectl) -> None:
    with told(one, "7-trading") as pods:
        cores = [{cpu % 16 for cpu in cpus(pod)} for pod in pods.values()]
        assert [len(cpus(pod)) for pod in pods.values()] == [3, 3, 3]
        assert len(set.union(*cores)) == sum(map(len, cores))


def test_a_network_function_waits_for_its_nic(one: Kubectl) -> None:
    with told(one, "8-network-function", "packet-gateway"):
        one("wait", "--for=condition=PodScheduled=False", "pod/packet-gateway", "--timeout=20s")
        assert "Insufficient example.com/nic" in one("describe", "pod", "packet-gateway").stdout


def test_a_virtual_machine_has_whole_cores_and_its_emulator_another(one: Kubectl) -> None:
    with told(one, "9-virtual-machine") as pods:
        for pod in pods.values():
            guest, emulator = cpus(pod, "vcpus"), cpus(pod, "emulator")
            assert len(guest) == 8
            assert {cpu % 16 for cpu in guest} == {cpu % 16 for cpu in guest if cpu < 16}
            assert not {cpu % 16 for cpu in emulator} & {cpu % 16 for cpu in guest}
