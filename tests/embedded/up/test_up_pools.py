"""Policy pools from outside: what /proc shows of each class, and settings that change while pods run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kernel import proc
from corelane.kube import keys
from corelane.kube.client import KubeClient
from corelane.kube.objects import Event, Node, NodeResourceTopology
from corelane.kube.pod import Pod
from support import up_pods
from support.up import FOREVER, Up, container, pod, up

CPUS = len(os.sched_getaffinity(0))
needs_two = pytest.mark.skipif(CPUS < 2, reason="one CPU: nothing can be bound")


def of_class(name: str, qos: str, cpu: str = "", **spec: Any) -> dict[str, Any]:
    manifest = pod(name, container("c", FOREVER, cpu), **spec)
    manifest["metadata"]["labels"] = {keys.QOS_CLASS: qos} if qos else {}
    return manifest


async def create(client: KubeClient, *manifests: dict[str, Any]) -> None:
    for manifest in manifests:
        await client.create(manifest)


def pids(cluster: Up) -> dict[str, int]:
    """Pod to the process id of its container's main process, as the runtime recorded it."""
    return {name.partition("/")[0]: pid for name, pid in up_pods.pids(cluster.data_dir).items()}


def allowed(cluster: Up, name: str) -> CPUSet:
    """What the kernel allows all tasks of a pod's container: one set, or the empty one."""
    pid = pids(cluster).get(name)
    sets = {task.cpus for task in proc.tasks_allowed([pid])} if pid else set()
    return sets.pop() if len(sets) == 1 else CPUSet()


def together(lists: Iterable[str]) -> CPUSet:
    return CPUSet(cpu for text in lists for cpu in CPUSet.parse(text))


def eventually(cluster: Up, holds: Callable[[], bool], what: str) -> None:
    async def request(_: KubeClient) -> bool:
        return holds()

    cluster.until(request, what)


@needs_two
@pytest.mark.parametrize("cgroups", ["auto", "off"])
def test_the_kernel_holds_every_class_to_the_cpus_that_the_rules_say(tmp_path: Path, cgroups: str) -> None:
    with up(tmp_path / "data", "--cgroups", cgroups, "--node-name", "here") as cluster:
        assert "policy pools, allocator optimal" in cluster.output
        shared, best = of_class("shared", "LS", "100m"), of_class("best", "BE")
        cluster.call(lambda client: create(client, shared, best))
        eventually(cluster, lambda: bool(allowed(cluster, "shared") and allowed(cluster, "best")), "they run")
        everything = allowed(cluster, "shared")
        assert everything == allowed(cluster, "best")
        for name, qos in (("alone", "LSE"), ("lends", "LSR"), ("plain", "")):
            cluster.call(lambda client, name=name, qos=qos: create(client, of_class(name, qos, "1")))
            eventually(cluster, lambda name=name: len(allowed(cluster, name)) == 1, f"{name} has its CPU")
            own = allowed(cluster, name)
            lent = CPUSet() if qos == "LSE" else own
            eventually(cluster, lambda own=own: allowed(cluster, "shared") == everything - own, "LS has left")
            wanted = (everything - own) | lent
            eventually(
                cluster, lambda wanted=wanted: allowed(cluster, "best") == wanted, "BE is where it may be"
            )
            assert allowed(cluster, name) == own
            cluster.call(lambda client, name=name: client.delete(Pod, name, namespace="default"))
            eventually(cluster, lambda: allowed(cluster, "shared") == everything, "the pool grew back")


_ONE_OF_EACH = (
    ("lse", "LSE", "1"),
    ("lsr", "LSR", "1"),
    ("guaranteed", "", "1"),
    ("ls", "LS", "100m"),
    ("be", "BE", ""),
)


def _keeps_the_rules(cpus: Callable[[str], CPUSet]) -> bool:
    alone, lent = cpus("lse"), cpus("lsr") | cpus("guaranteed")
    pool, best = cpus("ls"), cpus("be")
    apart = not alone & (lent | pool | best) and not lent & pool and not cpus("lsr") & cpus("guaranteed")
    return apart and best == pool | lent


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """One for several tests, held by affinity alone, beside a simulated node."""
    directory = tmp_path_factory.mktemp("up") / "data"
    machine = ("--nodes", "1", "--machine", "socket:2 core:4 smt:2")
    with up(directory, "--cgroups", "off", "--node-name", "here", *machine) as running:
        yield running


def clear_pods(cluster: Up, *names: str) -> None:
    for name in names:
        cluster.call(lambda client, name=name: client.delete(Pod, name, namespace="default"))
    cluster.until(lambda client: _none_left(client, names), "the pods are gone")


async def _none_left(client: KubeClient, names: tuple[str, ...]) -> bool:
    return not {one.metadata.name for one in (await client.list(Pod)).items} & set(names)


def test_a_simulated_node_keeps_the_same_rules(cluster: Up) -> None:
    away = {
        "nodeSelector": {"corelane.io/simulated": "true"},
        "tolerations": [{"key": "corelane.io/simulated", "operator": "Exists"}],
    }
    pods = [of_class(name, qos, cpu, **away) for name, qos, cpu in _ONE_OF_EACH]
    cluster.call(lambda client: create(client, *pods))

    def shown() -> dict[str, Any]:
        command = [sys.executable, "-m", "corelane", "status", "-o", "json"]
        command += ["--kubeconfig", str(cluster.kubeconfig), "--node", "sim-1"]
        return json.loads(subprocess.run(command, capture_output=True, check=True, timeout=180).stdout)

    eventually(cluster, lambda: len(shown()["containers"]) == 5, "all have a node")
    status = shown()
    cpus = {line["pod"]: CPUSet.parse(line["cpus"]) for line in status["containers"]}
    assert _keeps_the_rules(lambda name: cpus[name])
    assert {line["state"] for line in status["containers"]} == {"simulated"}
    assert not pids(cluster)
    classes = {line["pod"]: (line["class"], line["lane"]) for line in status["containers"]}
    assert classes == {
        "lse": ("LSE", "exclusive CPUs"),
        "lsr": ("LSR", "exclusive CPUs, shared with BE"),
        "guaranteed": ("LSR", "exclusive CPUs, shared with BE"),
        "ls": ("LS", "shared pool"),
        "be": ("BE", "BE pool"),
    }
    (node,) = status["nodes"]
    assert (node["policy"], node["allocator"]) == ("pools", "optimal")
    assert CPUSet.parse(node["lent"]) == cpus["lsr"] | cpus["guaranteed"]
    assert [part["node"] for part in node["pools"]] == [0, 1]
    assert together(part["bestEffort"] for part in node["pools"]) == cpus["be"]
    clear_pods(cluster, *cpus)


async def set_on_node(client: KubeClient, kind: str, **values: str | None) -> None:
    await client.patch(Node, "here", {"metadata": {kind: {_KEYS[name]: one for name, one in values.items()}}})


_KEYS = {
    "ratio": keys.AMPLIFICATION,
    "system": keys.SYSTEM_QOS,
    "strategy": keys.NODE_NUMA_STRATEGY,
    "policy": keys.NODE_POLICY,
}


async def told(client: KubeClient, reason: str) -> list[str]:
    return [one.message for one in (await client.list(Event)).items if one.reason == reason]


@needs_two
def test_settings_on_the_node_hold_while_it_runs_and_broken_ones_change_nothing(cluster: Up) -> None:
    cluster.call(lambda client: create(client, of_class("shared", "LS", "100m")))
    eventually(cluster, lambda: bool(allowed(cluster, "shared")), "it runs")
    everything = allowed(cluster, "shared")
    first = min(everything)
    aside = json.dumps({"cpuset": str(first)})
    cluster.call(lambda client: set_on_node(client, "annotations", system=aside))
    rest = everything - CPUSet([first])
    eventually(cluster, lambda: allowed(cluster, "shared") == rest, "the pool has lost the system's CPU")

    cluster.call(lambda client: set_on_node(client, "annotations", system='{"cpuset": "x-y"}'))
    (message,) = cluster.until(lambda client: told(client, "InvalidSetting"), "it is told")
    assert f"metadata.annotations[{keys.SYSTEM_QOS}].cpuset: invalid value 'x-y'" in message
    cluster.call(lambda client: set_on_node(client, "labels", strategy="Fullest"))
    cluster.until(lambda client: _told_of(client, "'Fullest': use MostAllocated"), "the label is told of too")
    assert len(cluster.call(lambda client: told(client, "InvalidSetting"))) == 2
    assert allowed(cluster, "shared") == rest

    cluster.call(lambda client: set_on_node(client, "annotations", system=None))
    eventually(cluster, lambda: allowed(cluster, "shared") == everything, "the pool has it back")
    cluster.call(lambda client: set_on_node(client, "labels", strategy=None))
    clear_pods(cluster, "shared")


def test_an_amplified_node_offers_more_and_says_what_it_really_has(cluster: Up) -> None:
    async def offer(client: KubeClient) -> tuple[str, str]:
        found = await client.get(Node, "here")
        return str(found.status.allocatable["cpu"]), found.metadata.annotations.get(keys.RAW_ALLOCATABLE, "")

    async def is_offered(client: KubeClient, wanted: tuple[str, str]) -> bool:
        return await offer(client) == wanted

    cluster.call(lambda client: set_on_node(client, "annotations", ratio='{"cpu": 1.5}'))
    more = quantity.canonical(f"{1500 * CPUS}m")
    told = json.dumps({"cpu": f"{1000 * CPUS}m"})
    cluster.until(lambda client: is_offered(client, (more, told)), "it offers more")
    cluster.call(lambda client: set_on_node(client, "annotations", ratio=None))
    cluster.until(lambda client: is_offered(client, (str(CPUS), "")), "it offers what it has")


async def _told_of(client: KubeClient, text: str) -> bool:
    return any(text in message for message in await told(client, "InvalidSetting"))


@needs_two
def test_a_start_under_another_policy_leaves_who_runs_where_it_is(tmp_path: Path) -> None:
    with up(tmp_path / "data", "--node-name", "here", "--policy", "static") as cluster:
        assert "policy static" in cluster.output
        cluster.call(lambda client: create(client, of_class("lane", "", "1"), of_class("best", "BE")))
        eventually(cluster, lambda: bool(allowed(cluster, "lane") and allowed(cluster, "best")), "they run")
        before, lane = pids(cluster), allowed(cluster, "lane")
        eventually(cluster, lambda: lane.isdisjoint(allowed(cluster, "best")), "best effort has left it")
        cluster.stop()
        with up(cluster.data_dir, "--node-name", "here") as again:
            assert "policy pools" in again.output
            (message,) = again.until(lambda client: told(client, "PolicyChanged"), "it is told")
            assert "changed from static to pools" in message
            assert pids(again) == before
            assert allowed(again, "lane") == lane
            assert lane.isdisjoint(allowed(again, "best"))


@needs_two
def test_a_pod_with_a_broken_annotation_waits_with_the_reason_and_others_run(cluster: Up) -> None:
    broken = of_class("broken", "LSR", "1")
    broken["metadata"]["annotations"] = {keys.RESOURCE_SPEC: '{"requiredCPUBindPolicy": "Tight"}'}
    forced = of_class("forced", "LSR", "1", nodeName="here")
    forced["metadata"]["annotations"] = broken["metadata"]["annotations"]
    cluster.call(lambda client: create(client, broken, forced, of_class("fine", "LSR", "1")))
    eventually(cluster, lambda: len(allowed(cluster, "fine")) == 1, "the others run")
    for name, where in (("broken", _waits), ("forced", _refused)):
        message = cluster.until(
            lambda client, name=name, where=where: where(client, name), f"{name} says why"
        )
        assert (
            f"metadata.annotations[{keys.RESOURCE_SPEC}].requiredCPUBindPolicy: invalid value 'Tight'"
            in message
        )
    assert set(pids(cluster)) == {"fine"}
    clear_pods(cluster, "broken", "forced", "fine")


async def _waits(client: KubeClient, name: str) -> str:
    found = (await client.get(Pod, name, "default")).status.conditions
    return next((one.message for one in found if one.type == "PodScheduled" and one.status == "False"), "")


async def _refused(client: KubeClient, name: str) -> str:
    body = (await client.get(Pod, name, "default")).status
    return body.message if body.phase == "Failed" else ""


@needs_two
def test_what_is_published_is_koordinators_form_of_the_truth(cluster: Up) -> None:
    cluster.call(lambda client: create(client, of_class("lsr", "LSR", "1")))
    eventually(cluster, lambda: len(allowed(cluster, "lsr")) == 1, "it runs")
    own = allowed(cluster, "lsr")
    found = cluster.call(lambda client: client.get(Pod, "lsr", "default"))
    assert json.loads(found.metadata.annotations[keys.RESOURCE_STATUS])["cpuset"] == str(own)

    async def published(client: KubeClient) -> dict[str, Any]:
        told = (await client.get(NodeResourceTopology, "here")).metadata.annotations
        parts = {key: json.loads(told[key]) for key in (keys.CPU_SHARED_POOLS, keys.BE_CPU_SHARED_POOLS)}
        return parts if "default/lsr" in told[keys.CPU_ALLOCATIONS] else {}

    pools = cluster.until(published, "the ledger is published")
    shared, best = (
        together(part["cpuset"] for part in pools[key])
        for key in (keys.CPU_SHARED_POOLS, keys.BE_CPU_SHARED_POOLS)
    )
    assert own.isdisjoint(shared)
    assert best == shared | own
    clear_pods(cluster, "lsr")
