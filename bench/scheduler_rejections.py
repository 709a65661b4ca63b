"""How many pods a node refuses after binding, by scheduler, on the same nodes and the same bursts.

Nodes are fragmented: pods of odd sizes ran there, and some have ended. `node.admit` models them: it answers
as the kubelet does (policy static, single-numa-node), or as corelane's agent (pools, single-numa-node).
A pod counts as refused too where it was allocated again across more NUMA nodes than its binding promised.

* corelane: this repository's core; what nodes publish reaches it late.
* totals: kube-scheduler, the real one where it is given, else its rule: total CPUs, least allocated first.
* reports: a scheduler that knows free CPUs by NUMA node from a report up to 60 s old, and totals of today.
"""

# ruff: noqa: S311
import asyncio
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import scheduler_cluster as clusters
import scheduler_drain as drains
import scheduler_load as load
from msgspec import structs
from report import Row

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node import TopologyOptions
from corelane.node.ledger import NodeState
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import BindSucceeded, CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.instructions import Bind

NODES: Final = 40
ROUNDS: Final = 4
ROUND_S: Final = 20.0
REPORT_S: Final = 60.0
PUBLISHED_EACH: Final = 25
"""Bindings until all nodes publish again."""
FILLED, ENDED, DEMAND = 0.92, 0.4, 0.75
REQUIRED: Final = {
    "static": {},
    "pools": {"scheduling.koordinator.sh/numa-topology-spec": '{"numaTopologyPolicy":"SingleNUMANode"}'},
}
"""Annotations by kind of node: corelane's nodes take the NUMA policy from the pod."""
SIZES: Final = (2, 3, 4, 6, 8, 12, 16)


@dataclass(slots=True)
class Outcome:
    """Bindings of one scheduler, and what became of them."""

    bound: int = 0
    refused: int = 0
    spread: int = 0
    """Admitted, but on more NUMA nodes than promised."""
    waiting: int = 0

    @property
    def share(self) -> float:
        return 100 * (self.refused + self.spread) / max(1, self.bound)


@dataclass(slots=True)
class World:
    """The nodes, as they are; `kubelet` nodes ignore proposed CPUs."""

    kind: str
    states: dict[str, NodeState]
    objects: dict[str, load.Object]
    pods: dict[str, tuple[str, load.Object]] = field(default_factory=dict)
    """By UID: node, object."""
    outcome: Outcome = field(default_factory=Outcome)

    def admit(self, obj: load.Object, name: str, promised: int | None = None) -> None:
        """A pod is bound; its node admits it or not."""
        request = translate.request(load.read(obj, Pod))
        if self.kind == "static":
            request = replace(request, proposal={}, zone=None)
        state, decision = nodes.admit(self.states[name], request)
        self.outcome.bound += 1
        if not decision.admitted:
            self.outcome.refused += 1
            return
        self.states[name] = state
        self.pods[obj["metadata"]["uid"]] = name, obj
        used = max((_numa_nodes(state, cpus) for cpus in decision.assignments.values()), default=0)
        self.outcome.spread += promised is not None and used > promised

    def end(self, uid: str) -> tuple[str, load.Object]:
        name, obj = self.pods.pop(uid)
        self.states[name] = nodes.release(self.states[name], uid)
        return name, obj


def _numa_nodes(state: NodeState, cpus: CPUSet) -> int:
    return sum(bool(node.cpus & cpus) for node in state.machine.nodes)


@dataclass(frozen=True, slots=True)
class Story:
    """What happens, the same for all schedulers: nodes and pods at first, endings and bursts by round."""

    states: dict[str, NodeState]
    objects: dict[str, load.Object]
    first: tuple[tuple[str, load.Object], ...]
    rounds: tuple[tuple[tuple[str, ...], tuple[load.Object, ...]], ...]

    def world(self, kind: str) -> World:
        world = World(kind, dict(self.states), self.objects)
        world.pods = {obj["metadata"]["uid"]: (name, obj) for name, obj in self.first}
        return world


def story(kind: str, seed: int, count: int = NODES, rounds: int = ROUNDS) -> Story:
    """Make fragmented nodes, and bursts for what is free."""
    chance = random.Random(f"{seed}/{kind}")
    states = {
        load.node_name(number): load.state(
            load.node_name(number), kind, numa=TopologyOptions(policy="single-numa-node")
        )
        for number in range(count)
    }
    objects = {name: _node(number, state) for number, (name, state) in enumerate(states.items())}
    filled: list[tuple[str, load.Object]] = []
    for name in states:
        states[name], held = _fragmented(chance, name, states[name], REQUIRED[kind])
        filled += held
    per_round, bursts = len(filled) * ENDED // rounds, []
    free = sum(len(state.free_exclusive) for state in states.values())
    ending = chance.sample([obj["metadata"]["uid"] for _, obj in filled], int(per_round) * rounds)
    for number in range(rounds):
        ended = ending[int(per_round) * number : int(per_round) * (number + 1)]
        sizes = {obj["metadata"]["uid"]: _cpus(obj) for _, obj in filled}
        free += sum(sizes[uid] for uid in ended)
        burst, demand = [], DEMAND * free
        while demand > 0:
            burst.append(_pod(chance, f"burst-{number}-{len(burst)}", REQUIRED[kind]))
            demand -= _cpus(burst[-1])
        free -= DEMAND * free
        bursts.append((tuple(ended), tuple(burst)))
    return Story(states, objects, tuple(filled), tuple(bursts))


def _node(number: int, state: NodeState) -> load.Object:
    obj = load.node_object(number)
    cpus = str(len(state.usable) - len(state.reserved))
    for part in ("capacity", "allocatable"):
        obj["status"][part] = obj["status"][part] | {"cpu": cpus}
    return obj


def _pod(chance: random.Random, name: str, annotations: dict[str, str]) -> load.Object:
    obj = load.exclusive(name, chance.choice(SIZES), "1Gi")
    obj["metadata"] |= {"uid": f"uid-{name}", "resourceVersion": "1", "annotations": annotations}
    return obj


def _cpus(obj: load.Object) -> int:
    return int(obj["spec"]["containers"][0]["resources"]["requests"]["cpu"])


def _fragmented(
    chance: random.Random, name: str, state: NodeState, annotations: dict[str, str]
) -> tuple[NodeState, list[tuple[str, load.Object]]]:
    """Fill a node with pods until few CPUs are left."""
    held = []
    capacity = len(state.free_exclusive)
    for number in range(60):
        if len(state.free_exclusive) < (1 - FILLED) * capacity:
            break
        obj = _pod(chance, f"{name}-{number}", annotations)
        after, decision = nodes.admit(state, translate.request(load.read(obj, Pod)))
        if decision.admitted:
            known = load.read(obj, Pod)
            obj["metadata"]["annotations"] = annotations | dict(
                translate.proposal_annotations(decision.assignments, known, state.machine, decision.zone)
            )
            state = after
            held.append((name, obj))
    return state, held


# Schedulers. Each binds the pods of a story's rounds into a world of its own.


def by_corelane(tale: Story, kind: str) -> Outcome:
    """Let the core place the pods; nodes publish late."""
    world, core, now = tale.world(kind), SchedulerCore(), 0.0
    published: dict[str, NodeResourceTopology] = {}

    def publish() -> None:
        for name, state in world.states.items():
            old = published.get(name)
            obj = load.topology_object(name, state)
            obj["metadata"]["resourceVersion"] = str(state.generation + 1)
            published[name] = load.read(obj, NodeResourceTopology)
            core.handle(TopologyChanged(now, old, published[name]))

    for obj in tale.objects.values():
        core.handle(NodeChanged(now, None, load.read(obj, Node)))
    for name, obj in tale.first:
        core.handle(PodChanged(now, None, _bound(obj, name)))
    publish()
    for ended, burst in tale.rounds:
        now += ROUND_S
        for uid in ended:
            name, obj = world.end(uid)
            core.handle(PodChanged(now, _bound(obj, name), None))
        publish()
        for obj in burst:
            core.handle(PodChanged(now, None, load.read(obj, Pod)))
        bindings: list[tuple[load.Object, Bind]] = []
        by_uid = {obj["metadata"]["uid"]: obj for obj in burst}
        for _ in range(4 * len(burst)):
            now += 0.01
            if not core.ready(now):
                break
            for instruction in core.handle(CycleDue(now)):
                if isinstance(instruction, Bind):
                    uid = instruction.pod.metadata.uid
                    bindings.append((by_uid[uid], instruction))
                    core.handle(BindSucceeded(now, uid))
                    bound = _bound(by_uid[uid], instruction.node, instruction.annotations)
                    core.handle(PodChanged(now, instruction.pod, bound))
            if len(bindings) >= PUBLISHED_EACH:
                _carry_out(world, bindings)
                publish()
        _carry_out(world, bindings)
        publish()
        left = core.pending()
        world.outcome.waiting += len(left)
        for uid in left:
            core.handle(PodChanged(now, load.read(by_uid[uid], Pod), None))
    return world.outcome


def _carry_out(world: World, bindings: list[tuple[load.Object, Bind]]) -> None:
    for obj, bind in bindings:
        annotated = {
            **obj,
            "metadata": {
                **obj["metadata"],
                "annotations": obj["metadata"]["annotations"] | dict(bind.annotations),
            },
        }
        state = world.states[bind.node]
        promised = max((_numa_nodes(state, cpus) for cpus in bind.assignments.values()), default=1)
        world.admit(annotated, bind.node, promised)
    bindings.clear()


def _bound(obj: load.Object, name: str, annotations: object = None) -> Pod:
    pod = load.read(obj, Pod)
    metadata = pod.metadata
    if annotations:
        metadata = structs.replace(metadata, annotations=metadata.annotations | dict(annotations))
    return structs.replace(pod, metadata=metadata, spec=structs.replace(pod.spec, node_name=name))


Fits = Callable[[World, str, int], bool]


def by_totals(
    tale: Story, kind: str, fits: Fits | None = None, each: Callable[[World, int], None] | None = None
) -> Outcome:
    """Bind by what pods request of a node in all, least allocated first, as kube-scheduler scores."""
    world = tale.world(kind)
    requested = dict.fromkeys(world.states, 0)
    for name, obj in tale.first:
        requested[name] += _cpus(obj)
    capacity = {name: int(obj["status"]["allocatable"]["cpu"]) for name, obj in tale.objects.items()}
    for number, (ended, burst) in enumerate(tale.rounds):
        for uid in ended:
            name, obj = world.end(uid)
            requested[name] -= _cpus(obj)
        if each:
            each(world, number)
        for obj in burst:
            cpus = _cpus(obj)
            open_to_it = [
                name
                for name in world.states
                if requested[name] + cpus <= capacity[name] and (fits is None or fits(world, name, cpus))
            ]
            if not open_to_it:
                world.outcome.waiting += 1
                continue
            name = min(open_to_it, key=lambda name: (requested[name] / capacity[name], name))
            refused = world.outcome.refused
            world.admit(obj, name)
            # A refused pod has ended, and requests nothing.
            requested[name] += cpus if world.outcome.refused == refused else 0
    return world.outcome


def by_reports(tale: Story, kind: str) -> Outcome:
    """As totals, but only where some NUMA node has enough free CPUs in the last report."""
    zones: dict[str, list[int]] = {}

    def report(world: World, number: int) -> None:
        if number * ROUND_S % REPORT_S == 0:
            for name, state in world.states.items():
                zones[name] = [len(node.cpus & state.free_exclusive) for node in state.machine.nodes]

    return by_totals(tale, kind, lambda _world, name, cpus: max(zones[name]) >= cpus, report)


def by_kube_scheduler(tale: Story, kind: str, binary: Path, assets: Path) -> Outcome:
    """Let the real kube-scheduler bind the pods, round by round, on a real API server."""
    world = tale.world(kind)
    with clusters.real(assets) as cluster:
        asyncio.run(_played(tale, world, cluster, binary))
    return world.outcome


async def _played(tale: Story, world: World, cluster: clusters.Cluster, binary: Path) -> None:
    async with cluster.client() as client:
        for obj in tale.objects.values():
            await client.create(obj)
            await client.patch(Node, obj["metadata"]["name"], {"spec": {"taints": None}})
        for name, obj in tale.first:
            await client.create(_plain(obj, node=name))
        with drains.kube_scheduler(binary, cluster):
            for ended, burst in tale.rounds:
                for uid in ended:
                    _, obj = world.end(uid)
                    await client.delete(Pod, obj["metadata"]["name"], namespace="default", grace_seconds=0)
                await clusters.put_pods(client, (_plain(obj) for obj in burst))
                for name, obj in await _settled(client, burst):
                    before = world.outcome.refused
                    world.admit(obj, name)
                    if world.outcome.refused > before:
                        await client.delete(
                            Pod, obj["metadata"]["name"], namespace="default", grace_seconds=0
                        )
                world.outcome.waiting += await _cleared(client, burst)


def _plain(obj: load.Object, node: str = "") -> load.Object:
    metadata = {key: obj["metadata"][key] for key in ("name", "namespace", "labels", "annotations")}
    spec = {**obj["spec"], "schedulerName": drains.KUBE}
    return {**obj, "metadata": metadata, "spec": spec | ({"nodeName": node} if node else {})}


async def _settled(client: object, burst: tuple[load.Object, ...]) -> list[tuple[str, load.Object]]:
    """Return (node, pod) in the order of binding, once every pod is bound or called unschedulable."""
    by_name = {obj["metadata"]["name"]: obj for obj in burst}
    for _ in range(600):
        listing = await client.list(Pod, namespace="default")  # type: ignore[attr-defined]
        mine = [pod for pod in listing.items if pod.metadata.name in by_name]
        judged = [pod for pod in mine if pod.spec.node_name or pod.status.conditions]
        if len(judged) == len(burst):
            bound = [pod for pod in mine if pod.spec.node_name]
            bound.sort(key=lambda pod: int(pod.metadata.resource_version))
            return [(pod.spec.node_name, by_name[pod.metadata.name]) for pod in bound]
        await asyncio.sleep(0.2)
    raise TimeoutError("kube-scheduler does not place the pods")


async def _cleared(client: object, burst: tuple[load.Object, ...]) -> int:
    """Delete pods that no node fits; return how many."""
    names = {obj["metadata"]["name"] for obj in burst}
    listing = await client.list(Pod, namespace="default")  # type: ignore[attr-defined]
    waiting = [pod for pod in listing.items if pod.metadata.name in names and not pod.spec.node_name]
    for pod in waiting:
        await client.delete(Pod, pod.metadata.name, namespace="default", grace_seconds=0)  # type: ignore[attr-defined]
    return len(waiting)


def rows(seed: int, binary: Path | None = None, assets: Path | None = None) -> Iterator[Row]:
    """Yield the rows of both kinds of node."""
    for kind, what in (("static", "kubelet static"), ("pools", "corelane")):
        tale = story(kind, seed)
        if binary and assets and os.access(assets / "etcd", os.X_OK):
            totals, who = by_kube_scheduler(tale, kind, binary, assets), "kube-scheduler"
        else:
            totals, who = by_totals(tale, kind), "totals as kube-scheduler"
        reports = by_reports(tale, kind)
        ours = by_corelane(tale, kind)
        title = f"refused after binding, {what} nodes"
        pods = sum(len(burst) for _, burst in tale.rounds)
        yield Row(f"{title}: corelane", ours.share, "%", 0, "lower", who, totals.share)
        yield Row(f"{title}: {who}", totals.share, "%", None)
        yield Row(f"{title}: NUMA reports up to 60 s old", reports.share, "%", None)
        admitted = 100 * (ours.bound - ours.refused) / pods
        yield Row(
            f"admitted, {what} nodes: corelane",
            admitted,
            "%",
            None,
            "higher",
            who,
            100 * (totals.bound - totals.refused) / pods,
        )
        yield Row(f"allocated across more NUMA nodes than promised, {what} nodes", ours.spread, "pods", 0)
