"""The longest single steps of the scheduler's core, by what they are about: 5,000 nodes with 50,000 pods.

A step is one event handled, which nothing interrupts: the loop's pause is at least as long. CPU time of the
thread, with recorded decisions (`explain`), as in the daemon; the collector is settled as there.
"""

import random
from collections import defaultdict
from collections.abc import Iterator
from time import thread_time
from typing import Any, Final

import scheduler_load as load
from msgspec.structs import replace
from report import Row

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.daemon import garbage
from corelane.scheduler.events import (
    BindRequested,
    CycleDue,
    NodeChanged,
    PodChanged,
    SchedulerEvent,
    TopologyChanged,
)
from corelane.scheduler.explain import report as explained
from corelane.scheduler.explain.record import DecisionRing
from corelane.scheduler.instructions import Bind, Evict, Instruction, SetCondition

NODES: Final = 5000
EACH: Final = 10
"""Pods on each node."""
TARGET_MS: Final = 20.0
_STEPS: Final = 300
"""Steps of a pod that are waited for: a preemptor in vain has thousands, others have their turn between."""
_VARIANTS: Final = 50
"""Different ledgers, of which each node has one."""


class Steps:
    """A core, and the longest step of each kind, in ms."""

    def __init__(self, kind: str) -> None:
        self.kind, self.ring = kind, DecisionRing()
        self.core = SchedulerCore(decisions=self.ring)
        self.longest: dict[str, float] = defaultdict(float)
        self.now, self.young = 1.0, garbage.YoungObjects()

    def handle(self, what: str, event: SchedulerEvent) -> list[Instruction]:
        begun = thread_time()
        done = self.core.handle(event)
        self.young.event_handled()
        self.longest[what] = max(self.longest[what], 1e3 * (thread_time() - begun))
        return done

    def decide(self, what: str, pod: Pod) -> None:
        """Have a pod arrive, and go on until something is decided about it."""
        self.handle(what, PodChanged(self.now, None, pod))
        for _ in range(_STEPS):
            self.now += 0.001
            done = self.handle(what, CycleDue(self.now))
            if any(_about(one) is pod for one in done):
                break
        begun = thread_time()
        explained.decisions(self.ring, pod.metadata.namespace, pod.metadata.name)
        took = 1e3 * (thread_time() - begun)
        self.longest["a recorded decision is read"] = max(self.longest["a recorded decision is read"], took)

    def idle(self, what: str) -> None:
        """Go on until nothing is left to do now."""
        for _ in range(_STEPS):
            self.now += 0.001
            if not self.core.ready(self.now):
                return
            self.handle(what, CycleDue(self.now))

    def rows(self, size: int) -> Iterator[Row]:
        for what, ms in self.longest.items():
            yield Row(f"longest step, {self.kind}, {size} nodes: {what}", ms, "ms", TARGET_MS)


def _about(instruction: Instruction) -> Pod | None:
    """The pod about which something is decided."""
    if isinstance(instruction, Evict):
        return instruction.preemptor
    return instruction.pod if isinstance(instruction, Bind | SetCondition) else None


def rows(seed: int, size: int = NODES) -> Iterator[Row]:
    """Yield the longest step of each kind, on nodes of three kinds."""
    garbage.collect_young()
    for kind in ("pools", "static", "zones"):
        steps = _measured(kind, seed, size)
        yield from steps.rows(size)
        del steps
        garbage.release()  # As a daemon whose scheduler ended.


def _measured(kind: str, seed: int, size: int) -> Steps:
    steps, chance = Steps(kind), random.Random(seed)  # noqa: S311
    known = list(_topologies(kind, chance, size))
    for number, topology in enumerate(known):
        steps.handle("a node is added", NodeChanged(0.0, None, load.slim_node(number)))
        steps.handle("a topology is published", TopologyChanged(0.0, None, topology))
    for number in range(size * EACH):
        steps.handle("a running pod is added", PodChanged(0.0, None, _running(number, size)))
        if number % 10_000 == 0:
            garbage.settle()  # As after a page of a list.
    garbage.settle()
    steps.idle("the columns settle")
    steps.decide("a first pod", _pod("first", 2))
    steps.decide("a new shape", _pod("new", 3, "3Gi"))
    steps.decide("a new shape that fits nowhere", _pod("hopeless", 100))
    steps.decide("a shape that fits nowhere by memory", _pod("large", 4, "511Gi"))
    steps.decide("a pod that preempts", _pod("preemptor", 120, priority=1000))
    steps.decide("a pod that preempts in vain", _pod("vain", 127, "511Gi", priority=1000))
    for key, topology in (("app", "kubernetes.io/hostname"), ("tier", "topology.kubernetes.io/zone")):
        steps.decide(f"anti-affinity by a new label, {topology}", _affine(f"anti-{key}", key, topology))
        steps.decide(f"spread by a new label, {topology}", _spread(f"spread-{key}", f"{key}2", topology))
    _relist(steps, known)
    for number in range(3):
        pod = _pod(f"extender-{number}", 5 + number)
        event = BindRequested(steps.now, pod, load.node_name(7 + number), steps.core.profile)
        steps.handle("an extender binds a new shape", event)
    return steps


def _relist(steps: Steps, known: list[NodeResourceTopology]) -> None:
    """All nodes come anew: first as they are, then with another label; topologies too. Parked pods wait."""
    for number, topology in enumerate(known):
        node = load.slim_node(number)
        labels = node.metadata.labels | {"rack": f"r{number % 40}"}
        changed = replace(node, metadata=replace(node.metadata, labels=labels))
        steps.handle("nodes are listed again", NodeChanged(steps.now, node, node))
        steps.handle("nodes are labelled", NodeChanged(steps.now, node, changed))
        steps.handle("topologies are listed again", TopologyChanged(steps.now, topology, topology))
    steps.idle("pods are tried after nodes changed")
    selector = {"nodeSelector": {"rack": "r1"}}
    steps.decide("a pod that selects a new label", _pod("racked", 2, **selector))


def _topologies(kind: str, chance: random.Random, size: int) -> Iterator[NodeResourceTopology]:
    """Yield what each node's agent, or exporter, publishes: nodes are in many different states."""
    variants = [_exported(chance) if kind == "zones" else _ledger(kind, chance) for _ in range(_VARIANTS)]
    for number in range(size):
        one = _exported(chance) if kind == "zones" else variants[number % _VARIANTS]
        metadata = replace(one.metadata, name=load.node_name(number), uid=f"t{number}", resource_version="1")
        yield replace(one, metadata=metadata)


def _ledger(kind: str, chance: random.Random) -> NodeResourceTopology:
    state: NodeState = load.state("template", kind)
    for number in range(chance.randrange(6)):
        obj = load.exclusive(f"ledger-{number}", chance.choice((2, 3, 4, 6, 8, 12)), "1Gi")
        obj["metadata"]["uid"] = f"ledger-{number}"
        state = nodes.admit(state, translate.request(load.read(obj, Pod)))[0]
    return load.read(load.topology_object("template", state), NodeResourceTopology)


def _exported(chance: random.Random) -> NodeResourceTopology:
    def amount(name: str, total: str, free: str) -> dict[str, str]:
        return {"name": name, "capacity": total, "allocatable": total, "available": free}

    zones = [
        {
            "name": f"node-{number}",
            "type": "Node",
            "resources": [
                amount("cpu", "32", str(chance.randrange(1, 20))),
                amount("memory", "128Gi", f"{chance.randrange(20, 128)}Gi"),
            ],
        }
        for number in range(4)
    ]
    policy = [
        {"name": "topologyManagerPolicy", "value": "single-numa-node"},
        {"name": "topologyManagerScope", "value": "container"},
    ]
    obj = {
        "apiVersion": "topology.node.k8s.io/v1alpha2",
        "kind": "NodeResourceTopology",
        "metadata": {"name": "template"},
        "attributes": policy,
        "topologyPolicies": ["SingleNUMANodeContainerLevel"],
        "zones": zones,
    }
    made: NodeResourceTopology = load.read(obj, NodeResourceTopology)
    return made


def _running(number: int, size: int) -> Pod:
    labels = {
        "app": f"a{number % 50}",
        "tier": f"t{number % 7}",
        "app2": f"a{number % 50}",
        "tier2": f"t{number % 7}",
    }
    obj = load.burstable(f"run-{number}", "1500m", "2Gi", labels=labels)
    return _read(obj, node=load.node_name(number % size), phase="Running")


def _pod(name: str, cpus: int, memory: str = "4Gi", *, priority: int = 0, **more: Any) -> Pod:
    return _read(load.exclusive(name, cpus, memory, **more), priority=priority)


def _affine(name: str, key: str, topology: str) -> Pod:
    term = {"topologyKey": topology, "labelSelector": {"matchLabels": {key: "a1" if key == "app" else "t1"}}}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return _read(load.burstable(name, "100m", "64Mi", labels={key: "x"}, affinity=affinity))


def _spread(name: str, key: str, topology: str) -> Pod:
    value = "a1" if key.startswith("app") else "t1"
    constraint = {
        "maxSkew": 1,
        "topologyKey": topology,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {key: value}},
    }
    return _read(
        load.burstable(name, "100m", "64Mi", labels={key: value}, topologySpreadConstraints=[constraint])
    )


def _read(obj: load.Object, *, node: str = "", priority: int = 0, phase: str = "Pending") -> Pod:
    obj["metadata"] |= {"uid": f"uid-{obj['metadata']['name']}", "resourceVersion": "1"}
    obj["spec"] |= {"nodeName": node, "priority": priority}
    obj["status"] = {"phase": phase}
    pod: Pod = load.read(obj, Pod)
    return pod
