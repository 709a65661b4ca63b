"""The stories on a running `corelane up`: what its status says runs where, on the nodes that the page has."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from corelane.app import status
from corelane.cpuset import CPUSet
from corelane.kube.client import KubeClient
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node.explain.cluster_status import ClusterStatus
from support import stories
from support.up import Up, up

FIRST, SECOND = CPUSet.parse("0-7,16-23"), CPUSet.parse("8-15,24-31")
CPU = "node.koordinator.sh/cpu-bind-policy"
NUMA = "node.koordinator.sh/numa-allocate-strategy"
WATCH_SECONDS = 0.5
"""The scheduler's watch has what is published a moment after a list has it."""


def started(directory: Path, name: str, settings: str, nodes: int) -> Iterator[Up]:
    arguments = ["--nodes", str(nodes), "--machine", stories.machine(name), "--node-name", "here"]
    file = str(stories.DIRECTORY / "settings" / settings)
    with up(directory / "data", *arguments, "--node-config", file) as running:
        yield running


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    yield from started(tmp_path_factory.mktemp("usual"), "8-network-function", "nics.yaml", 2)


@pytest.fixture(scope="module")
def isolated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    yield from started(tmp_path_factory.mktemp("isolated"), "7-trading", "isolated.yaml", 1)


class Told:
    """What `corelane status` says once all pods of a story run, but for those that wait."""

    def __init__(self, found: ClusterStatus) -> None:
        self.cpus = {f"{line.pod}/{line.container}": line.cpus for line in found.containers}
        self.lanes = {f"{line.pod}/{line.container}": line.lane for line in found.containers}
        self.nodes = {line.pod: line.node for line in found.containers}
        self.pending = {line.pod: line.why for line in found.pending}

    def of(self, pod: str, container: str = "app") -> CPUSet:
        return self.cpus[f"{pod}/{container}"]


def cores(cpus: CPUSet) -> set[int]:
    """On all these machines CPU n + 16 is the sibling of n."""
    return {cpu % 16 for cpu in cpus}


def tell(
    cluster: Up,
    name: str,
    *waiting: str,
    without: str = "",
    labels: Mapping[str, str] | None = None,
    published: str = "",
) -> Told:
    """Play a story, `without` one annotation, on sim-1 with these labels and what it publishes of them."""

    async def play(client: KubeClient) -> Told:
        await label(client, labels or {}, published)
        trees = list(yaml.safe_load_all(stories.path(name).read_text()))
        for tree in trees:
            tree["metadata"].get("annotations", {}).pop(without, None)
            tree["metadata"]["namespace"] = "default"
            await client.create(tree)
        try:
            return Told(await settled(client, len(trees) - len(waiting), set(waiting)))
        finally:
            for tree in trees:
                await client.delete(Pod, tree["metadata"]["name"], namespace="default", grace_seconds=0)
            await until_gone(client)
            await label(client, dict.fromkeys(labels or {}), published)

    return cluster.call(play)


async def label(client: KubeClient, labels: Mapping[str, str | None], published: str) -> None:
    """Label sim-1, or take labels away, and wait until what it publishes has changed."""
    if not labels:
        return
    wanted = None not in labels.values()
    await client.patch(Node, "sim-1", {"metadata": {"labels": dict(labels)}})
    deadline = time.monotonic() + 120
    while (published in await settings(client)) is not wanted:
        assert time.monotonic() < deadline, f"{published}: {labels} changed nothing"
        await asyncio.sleep(0.05)


async def settings(client: KubeClient) -> str:
    found = await client.get(NodeResourceTopology, "sim-1")
    return found.metadata.annotations["corelane.io/cpu-allocations"]


async def settled(client: KubeClient, running: int, waiting: set[str]) -> ClusterStatus:
    deadline = time.monotonic() + 120
    while True:
        found = await status.gather(client)
        ready = {line.pod for line in found.containers if line.state == "simulated"}
        pending = {line.pod for line in found.pending if line.why.startswith("0/")}
        if len(ready) == running and pending == waiting:
            return found
        assert time.monotonic() < deadline, f"{found.containers} {found.pending}"
        await asyncio.sleep(0.05)


def counts_pods(node: NodeResourceTopology) -> bool:
    """Whether a node's published ledger has pods; it follows their deletion a moment later."""
    return bool(json.loads(node.metadata.annotations["corelane.io/cpu-allocations"]).get("pods"))


async def until_gone(client: KubeClient) -> None:
    deadline = time.monotonic() + 120
    while (await client.list(Pod)).items or [
        node for node in (await client.list(NodeResourceTopology)).items if counts_pods(node)
    ]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    await asyncio.sleep(WATCH_SECONDS)


def test_the_kubelets_options_are_kept_by_its_own_policy_and_by_labels_alike(usual: Up) -> None:
    name = "1-kubelet-options"
    plain = tell(usual, name)
    assert [len(plain.of("wide", "engine") & node) for node in (FIRST, SECOND)] == [14, 6]
    static = tell(usual, name, "odd", labels={"corelane.io/policy": "static"}, published='"policy":"static"')
    assert "SMT Alignment Error" in static.pending["odd"]
    said = {CPU: "FullPCPUsOnly", NUMA: "DistributeEvenly"}
    pools = tell(usual, name, "odd", labels=said, published='"node_bind":"FullPCPUs"')
    assert "requested cpus not multiple cpus per core" in pools.pending["odd"]
    for told in (static, pools):
        wide = told.of("wide", "engine")
        assert [len(wide & node) for node in (FIRST, SECOND)] == [10, 10]
        assert len(cores(wide)) == 10


def test_what_is_reserved_is_lent_and_what_is_exclusive_is_not(usual: Up) -> None:
    told = tell(usual, "2-guaranteed-and-shared")
    payments, search, classic = (told.of(pod) for pod in ("payments", "search", "classic"))
    everything = FIRST | SECOND
    assert told.of("batch") == everything - payments
    assert told.of("web") == everything - payments - search - classic
    assert told.lanes["search/app"] == told.lanes["classic/app"] == "exclusive CPUs, shared with BE"


def test_a_pod_goes_where_a_numa_node_has_room_for_it(usual: Up) -> None:
    told = tell(usual, "3-numa-alignment")
    assert told.nodes == {"left": "sim-1", "right": "sim-1", "bystander": "sim-1", "engine": "sim-2"}
    assert [len(told.of("bystander") & node) for node in (FIRST, SECOND)] == [8, 2]


def test_instances_are_never_on_one_core_and_without_the_annotation_they_are(usual: Up) -> None:
    quotes = [f"quotes-{i}" for i in (1, 2, 3, 4)]
    told = tell(usual, "4-exclusive-instances")
    assert len(set.union(*(cores(told.of(pod)) for pod in quotes))) == 8
    assert cores(told.of("quotes-1")) | cores(told.of("quotes-2")) == cores(told.of("reports"))
    without = tell(usual, "4-exclusive-instances", without="corelane.io/cpu-affinity")
    assert len(set.union(*(cores(without.of(pod)) for pod in quotes))) == 6


def test_some_pack_numa_nodes_and_a_label_spreads_who_says_nothing(usual: Up) -> None:
    told = tell(usual, "5-numa-strategy")
    assert {pod: told.of(pod) <= FIRST for pod in told.nodes} == {
        "pack-1": True, "pack-2": True, "pack-3": True, "calm-1": False, "calm-2": False,
    }  # fmt: skip
    key = "scheduling.koordinator.sh/numa-topology-spec"
    labels, published = {NUMA: "LeastAllocated"}, '"strategy":"LeastAllocated"'
    spread = tell(usual, "5-numa-strategy", without=key, labels=labels, published=published)
    assert [spread.of(pod) <= FIRST for pod in ("pack-1", "pack-2", "calm-1", "pack-3", "calm-2")] == [
        False, True, False, True, False,
    ]  # fmt: skip


def test_a_large_pod_fits_beside_odd_ones_and_with_koordinators_picks_it_does_not(usual: Up) -> None:
    told = tell(usual, "6-fragmentation")
    analytics = told.of("analytics")
    assert analytics <= SECOND
    assert len(cores(analytics)) == 6
    labels = {"corelane.io/allocator": "koordinator"}
    theirs = tell(usual, "6-fragmentation", "analytics", labels=labels, published='"allocator":"koordinator"')
    assert "Insufficient NUMA Node resources" in theirs.pending["analytics"]


def test_trading_has_isolated_cores_and_nobody_beside_it(isolated: Up) -> None:
    told = tell(isolated, "7-trading")
    own = [told.of("trading-1", "engine"), told.of("trading-2", "engine"), told.of("feed")]
    assert [len(cpus) for cpus in own] == [3, 3, 3]
    assert len(set.union(*map(cores, own))) == 6
    assert not (own[0] | own[1] | own[2]) & CPUSet.parse("0-1,8-9,16-17,24-25")
    assert all(cpus <= FIRST or cpus <= SECOND for cpus in own[:2])


def test_a_network_function_is_where_its_nic_is_and_without_it_elsewhere(usual: Up) -> None:
    told = tell(usual, "8-network-function")
    dataplane, telemetry = (told.of("packet-gateway", name) for name in ("dataplane", "telemetry"))
    assert (len(dataplane), len(telemetry)) == (6, 1)
    assert dataplane | telemetry <= SECOND
    assert told.lanes["packet-gateway/log-shipper"] == "shared pool of NUMA 1"

    async def offered(client: KubeClient) -> Any:
        return (await client.get(Node, "sim-1")).status.allocatable["example.com/nic"]

    assert str(usual.call(offered)) == "2"


def test_virtual_cpus_are_on_whole_cores_and_the_emulator_is_on_none_of_them(usual: Up) -> None:
    told = tell(usual, "9-virtual-machine")
    for vm in ("vm-1", "vm-2"):
        guest, emulator = told.of(vm, "vcpus"), told.of(vm, "emulator")
        assert (len(guest), len(cores(guest)), len(emulator)) == (8, 4, 1)
        assert not cores(guest) & cores(emulator)
        assert guest | emulator <= FIRST or guest | emulator <= SECOND
