"""What `corelane status` says of containers in pools: in which, of what class, and why."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from msgspec.structs import replace as changed
from rich.console import Console

from corelane.cpuset import CPUSet
from corelane.fleet import status
from corelane.fleet.cluster import ClusterObjects, Unread
from corelane.fleet.status import Ledgers, ledgers, with_claims
from corelane.kube import keys, translate
from corelane.kube.meta import Condition, ObjectMeta
from corelane.kube.objects import Lease, LeaseSpec, NodeResourceTopology
from corelane.kube.translate.koordlet import KubeletReport, PodCPUs
from corelane.kube.translate.node_labels import KubeletSettings
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig, PoolOptions
from corelane.node.explain.cluster_status import ClusterStatus, ContainerLine
from corelane.node.kubelet.checkpoint import Checkpoint
from corelane.node.ledger import new
from corelane.node.recovery.takeover import Stage, Takeover, follow, takeover
from corelane.view import status as view
from corelane.workload import BindPolicy, PodQOS
from support import objects
from support.pods import container, guaranteed, pod

NOW = datetime(2026, 11, 28, 12, 0, 0, tzinfo=UTC)
MACHINE = parse_spec("socket:2 core:4 smt:2")


def line(manifest: object, config: NodeConfig) -> ContainerLine:
    """The line of a pod's first container on a node whose ledger does not name it."""
    states = {"n": new(MACHINE, config)}
    return next(iter(status.container_lines(manifest, states)))  # type: ignore[arg-type]


def test_a_container_in_a_pool_shows_its_class_and_pool() -> None:
    config = NodeConfig("pools", pools=PoolOptions(system=CPUSet([7])))
    for qos, lane, cpus in (
        ("LS", "shared pool", "0-6,8-15"),
        ("BE", "BE pool", "0-6,8-15"),
        ("SYSTEM", "system CPUs", "7"),
    ):
        found = line(pod("a", container("x"), labels={keys.QOS_CLASS: qos}, node="n"), config)
        assert (found.cls, found.lane, str(found.cpus)) == (qos, lane, cpus)


def test_who_came_under_other_settings_is_not_said_to_be_bound() -> None:
    lane = guaranteed("a", "2", node="n")
    for config in (NodeConfig("static"), NodeConfig("pools")):
        assert (
            line(lane, config).why
            == "shared pool: admitted under other node settings; unchanged while it runs"
        )
    told = line(lane, NodeConfig("pools", pools=PoolOptions(guaranteed_default=PodQOS.LS))).why
    assert told == "Guaranteed pod: class LS on this node; runs in the shared pool"


def test_zones_without_cpu_ids_are_no_ledger_and_no_fault() -> None:
    zone = {"name": "node-0", "type": "Node", "resources": []}
    topologies = [
        msgspec.convert(published, NodeResourceTopology)
        for published in (
            {"metadata": {"name": "zones"}, "zones": [zone]},
            {"metadata": {"name": "damaged", "annotations": {keys.CPU_ALLOCATIONS: "{"}}, "zones": [zone]},
        )
    ]
    published = ledgers(ClusterObjects(NOW, topologies=tuple(topologies)))
    assert published.states == {}
    assert published.faults.keys() == {"damaged"}


def kubelets(*, koordlets: bool, pods: tuple[PodCPUs, ...] = ()) -> NodeResourceTopology:
    """What koordlet, or corelane's agent of policy none, publishes beside a static kubelet."""
    settings = KubeletSettings("static", {}, CPUSet([0, 8]), "none", "container")
    body = translate.topology(
        MACHINE, "n", new(MACHINE, NodeConfig("none")), kubelet=KubeletReport(settings, pods)
    )
    if koordlets:
        del body["metadata"]["labels"]
        for key in (keys.CPU_ALLOCATIONS, keys.MACHINE):
            del body["metadata"]["annotations"][key]
    return msgspec.convert(body, NodeResourceTopology)


@pytest.mark.parametrize("koordlets", [True, False])
def test_where_the_kubelet_allocates_only_what_it_published_is_shown(koordlets: bool) -> None:
    known = PodCPUs("ns", "known", "uid-known", CPUSet([1, 9]))
    topology = kubelets(koordlets=koordlets, pods=(known,))
    states = ledgers(ClusterObjects(NOW, topologies=(topology,))).states
    annotated = {keys.KUBELET_CPUSETS: '{"main": "2,10"}'}
    pods = (
        guaranteed("known", "2", node="n"),
        guaranteed("read", "2", node="n", annotations=annotated),
        guaranteed("new", "2", node="n", annotations={keys.RESOURCE_STATUS: '{"cpuset": "3,11"}'}),
        guaranteed("odd", "2", node="n", annotations={keys.KUBELET_CPUSETS: '["x"]'}),
        guaranteed("shared", "1500m", node="n"),
    )
    lines = [line for one in pods for line in status.container_lines(one, states)]
    assert [(one.pod, str(one.cpus), one.lane) for one in lines] == [
        ("known", "1,9", "exclusive CPUs"),
        ("read", "2,10", "exclusive CPUs"),
        ("new", "", "exclusive CPUs"),
        ("odd", "", "exclusive CPUs"),
        ("shared", "0,2-8,10-15", "shared pool"),
    ]
    shown = status._node(objects.node("n", 16), states["n"])
    told = view._node(shown)
    assert (told["policy"], told["exclusive"]["9"]) == ("static", "ns/known")
    assert takeover(states["n"]) == Takeover(Stage.KUBELET)
    assert lines[2].why == "allocated by the kubelet, which has not published them yet"
    assert lines[4].why == "shared pool: CPU request 1500m is not an integer"
    assert with_claims(states, pods) == states


def test_a_label_that_cannot_be_meant_is_shown_and_spoils_no_table() -> None:
    found = line(pod("a", container("x"), labels={keys.QOS_CLASS: "LSX"}, node="n"), NodeConfig("pools"))
    assert (found.cls, found.lane) == ("", "shared pool")
    assert "invalid value 'LSX': use LSE, LSR, LS, BE or SYSTEM" in found.why


def test_a_node_that_is_taken_over_from_a_kubelet_shows_whose_end_it_waits_for() -> None:
    ledger, _ = follow(
        new(MACHINE, NodeConfig("pools")),
        Checkpoint("static", entries={"u1": {"app": CPUSet([2, 10])}, "u2": {"app": CPUSet([3])}}),
    )
    told = status._node(objects.node("n", 16), ledger)
    shown = ClusterStatus((told, status._node(objects.node("m", 16), new(MACHINE))), (), ())
    assert view.plain(shown)["nodes"][0]["takeover"] == {
        "stage": "both",
        "cpus": "2-3,10",
        "pods": ["pod with UID u1", "pod with UID u2"],
    }
    assert view.plain(shown)["nodes"][1]["takeover"] == {"stage": "done", "cpus": "", "pods": []}
    to = Console(file=io.StringIO(), width=200)
    view.show_nodes(shown, to)
    waits = (
        "node n: takeover from the kubelet in progress; CPUs 2-3,10 held for the pods that the kubelet "
        "pinned until these end: "
    )
    lines = [line for line in to.file.getvalue().splitlines() if "kubelet" in line]  # type: ignore[attr-defined]
    assert lines == [f"{waits}pod with UID u1, pod with UID u2"]


def test_a_pod_that_was_just_bound_has_its_cpus_though_its_agent_has_not_published_them() -> None:
    lane = guaranteed("a", "2", node="n", annotations={keys.RESOURCE_STATUS: '{"cpuset": "1,9"}'})
    states = with_claims({"n": new(MACHINE, NodeConfig("pools"))}, [lane])
    (found,) = status.container_lines(lane, states)
    assert (str(found.cpus), found.lane, found.state) == ("1,9", "exclusive CPUs, shared with BE", "reserved")
    assert not states["n"].shared_pool & CPUSet([1, 9])
    assert with_claims(states, [lane]) == states


def test_cpus_that_are_not_confirmed_have_the_agents_reason_and_their_phase_is_explained() -> None:
    pinned = Condition(keys.PINNED, "False", reason="NotExclusive", message="c: process 7 may use CPU 1")
    lane = guaranteed("a", "2", node="n", annotations={keys.RESOURCE_STATUS: '{"cpuset": "1,9"}'})
    lane = changed(lane, status=changed(lane.status, conditions=(pinned,)))
    states = with_claims({"n": new(MACHINE, NodeConfig("pools"))}, [lane])
    lines = tuple(status.container_lines(lane, states))
    assert [line.unconfirmed for line in lines] == ["NotExclusive: c: process 7 may use CPU 1"]
    console = Console(file=io.StringIO(), width=200)
    view.show_containers(lines, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "reserved: allocated to the container, not written to its cgroup yet" in text
    assert "applied: " not in text
    assert "NotExclusive: c: process 7 may use CPU 1" in text


def test_isolated_cpus_that_are_in_no_pool_are_not_shown_as_shared_with_best_effort() -> None:
    machine = parse_spec("core:8 smt:2 isolated:4-7,12-15")
    config = NodeConfig("pools", pools=PoolOptions(isolated_cpus="exclusive-only"))
    lane = guaranteed("a", "2", node="n", annotations={keys.RESOURCE_STATUS: '{"cpuset": "4,12"}'})
    states = with_claims({"n": new(machine, config)}, [lane])
    (found,) = status.container_lines(lane, states)
    told = status._node(objects.node("n", 16), states["n"])
    assert (str(found.cpus), found.lane) == ("4,12", "exclusive CPUs")
    assert view.painted(states["n"])[4].qos == "LSR"
    assert (view._node(told)["lent"], view._node(told)["bestEffortPool"]) == ("", "0-3,8-11")


def test_a_nodes_labels_count_where_koordlet_publishes_and_a_broken_one_is_told() -> None:
    body = translate.topology(MACHINE, "n", new(MACHINE, NodeConfig("pools")))
    del body["metadata"]["annotations"][keys.CPU_ALLOCATIONS], body["metadata"]["annotations"][keys.MACHINE]
    del body["metadata"]["labels"]
    published = msgspec.convert(body, NodeResourceTopology)

    def of_labels(labels: dict[str, str]) -> Ledgers:
        return ledgers(ClusterObjects(NOW, (objects.node("n", 16, labels=labels),), (published,)))

    plain, labelled = of_labels({}), of_labels({keys.NODE_BIND_POLICY: "FullPCPUsOnly"})
    binds = [one.states["n"].config.pools.node_bind for one in (plain, labelled)]
    assert binds == [None, BindPolicy.FULL_PCPUS]
    broken = of_labels({keys.NODE_BIND_POLICY: "Full"})
    assert not broken.states
    assert f"metadata.labels[{keys.NODE_BIND_POLICY}]" in broken.faults["n"]


def agents_lease(name: str, seconds_ago: float, holder: str = "a") -> Lease:
    renewed = (NOW - timedelta(seconds=seconds_ago)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    meta = ObjectMeta(name=name, namespace=keys.AGENT_NAMESPACE)
    return Lease(metadata=meta, spec=LeaseSpec(holder, 60, renew_time=renewed))


def test_a_node_whose_agent_ended_says_so_and_the_cpus_of_its_pods_are_not_called_applied() -> None:
    state = new(MACHINE, NodeConfig("pools"))
    topologies = [objects.topology(name, state, leased=name != "former") for name in NAMES]
    leases = [
        agents_lease("runs", 15),
        agents_lease("expired", 90),
        agents_lease("released", 5, holder=""),
        agents_lease("former", 900),
    ]
    cluster = ClusterObjects(NOW, topologies=tuple(topologies), leases=tuple(leases))
    faults = status.agent_faults(cluster)
    assert {name: text.partition(";")[0].partition(", longer")[0] for name, text in faults.items()} == {
        "expired": "Lease corelane-system/expired was last renewed at 2026-11-28T11:58:30.000000Z",
        "released": "Lease corelane-system/released was given up at 2026-11-28T11:59:55.000000Z",
        "missing": "Lease corelane-system/missing does not exist",
    }
    shown = status._node(objects.node("expired", 16), state, faults["expired"])
    assert view._kind(shown) == "real, no agent"
    assert view._node(shown)["agentFault"] == faults["expired"]
    console = Console(file=io.StringIO(), width=200)
    view.show_nodes(ClusterStatus((shown,), (), ()), console)
    assert (
        "node expired: no agent runs, CPUs are neither applied nor checked: Lease" in console.file.getvalue()
    )  # type: ignore[attr-defined]
    (found,) = status.container_lines(guaranteed("a", "2", node="n"), {"n": state}, set(), {"n"})
    assert found.state == "no agent"
    console = Console(file=io.StringIO(), width=200)
    view.show_containers((found,), console)
    told = " ".join(console.file.getvalue().split())  # type: ignore[attr-defined]
    assert "Pinned of its pods is as old as the agent's last sign of life" in told
    unread = replace(cluster, leases=(), unread=(Unread("leases", "403"),))
    assert not status.agent_faults(unread)


NAMES = ("runs", "expired", "released", "missing", "former")
