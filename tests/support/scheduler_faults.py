"""A world around the scheduler's core: an API server, nodes of all kinds, late news, and faults.

What is true changes at once; the core hears of it later, each kind of object in its own order, as from
watches. Faults are restarts, relists, lost nodes, repeated and damaged news. Which CPUs pods really have is
kept apart from what is published: `agents` for corelane's agents and for kubelets, `cpus` for koordlet, which
carries out what pods' annotations say.
"""

import json
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from dataclasses import replace as changed

from msgspec.structs import replace

from corelane import node as nodes
from corelane.cpuset import CPUSet
from corelane.kube import keys, translate
from corelane.kube.meta import Object
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    CycleDue,
    EvictFailed,
    LookUpFailed,
    NodeChanged,
    PodChanged,
    PodLookedUp,
    SchedulerEvent,
    TopologyChanged,
)
from corelane.scheduler.instructions import Bind, Evict, Instruction, LookUpPod
from support import objects

KINDS = ("static", "pools", "koordlet", "kubelet", "zones", "totals")
BROKEN = {keys.CPU_ALLOCATIONS: "{", keys.CPU_TOPOLOGY: '{"detail":7}'}
EVENTS: dict[str, Callable[..., SchedulerEvent]] = {
    "node": NodeChanged,
    "topology": TopologyChanged,
    "pod": PodChanged,
}
"""Of the kinds of objects that the core hears of."""


@dataclass
class FaultyWorld:
    core: SchedulerCore = field(default_factory=SchedulerCore)
    now: float = 0.0
    kinds: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    topologies: dict[str, NodeResourceTopology] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    """By UID; nodes, topologies and pods are as the API server has them."""
    agents: dict[str, NodeState] = field(default_factory=dict)
    cpus: dict[str, dict[str, CPUSet]] = field(default_factory=dict)
    """CPUs by container of each bound pod, by UID, as the binding promised."""
    news: dict[str, deque[tuple[float, Callable[[], SchedulerEvent]]]] = field(default_factory=dict)
    """By kind, each with the time of the change."""
    seen: dict[str, dict[str, Object]] = field(default_factory=lambda: {kind: {} for kind in EVENTS})
    """What the informers have handed on, by kind of object and name, or UID of a pod."""
    asked: deque[Bind] = field(default_factory=deque)
    """Bindings without an answer yet."""
    late: deque[tuple[float, Bind]] = field(default_factory=deque)
    """Bindings that timed out at that time, and may be carried out within a minute."""
    looked_up: deque[Pod] = field(default_factory=deque)
    """Pods to be read without an answer yet."""
    evictions: deque[Evict] = field(default_factory=deque)
    """Pods to be evicted, which the shell has yet to do."""
    damaged: set[str] = field(default_factory=set)
    repicks: int = 0
    refusals: int = 0
    log: list[tuple[SchedulerEvent, list[Instruction]]] = field(default_factory=list)
    """Everything the present core was given and answered."""

    # Nodes.

    def kind_comes(self, name: str, kind: str, spec: str, count: int) -> None:
        self.kinds[name] = kind
        policy = "static" if kind in {"static", "kubelet"} else "pools"
        self.agents[name] = objects.state(spec, name, policy=policy)
        node = objects.node(name, count, memory="64Gi")
        node = replace(node, metadata=replace(node.metadata, uid=f"uid-{name}-{self.now}"))
        self.set_node(node)
        self.publish(name)

    def node_vanishes(self, name: str) -> None:
        """The Node and what it published are deleted; then its pods are, one by one."""
        self.kinds.pop(name)
        del self.agents[name]
        del self.nodes[name]
        self.tell("node", name, None)
        self.damaged.discard(name)
        if self.topologies.pop(name, None):
            self.tell("topology", name, None)
        for uid in [uid for uid, pod in self.pods.items() if pod.spec.node_name == name]:
            self.remove_pod(uid)

    def set_node(self, node: Node) -> None:
        self.nodes[node.metadata.name] = node
        self.tell("node", node.metadata.name, node)

    def publish(self, name: str) -> None:
        if name not in self.agents or self.kinds[name] == "totals":
            return
        version = int(self.topologies[name].metadata.resource_version) + 1 if name in self.topologies else 1
        made = self._published(name)
        made = replace(made, metadata=replace(made.metadata, resource_version=str(version)))
        self.topologies[name] = made
        self.tell("topology", name, made)

    def _published(self, name: str) -> NodeResourceTopology:
        state, kind = self.agents[name], self.kinds[name]
        shown = nodes.new(state.machine, state.config) if kind in {"koordlet", "kubelet"} else state
        made = objects.topology(name, shown)
        annotations = dict(made.metadata.annotations)
        if kind in {"koordlet", "kubelet"}:
            for key in (keys.MACHINE, keys.CPU_ALLOCATIONS):
                annotations.pop(key, None)
            made = replace(made, metadata=replace(made.metadata, labels={keys.MANAGED_BY: "Koordinator"}))
        if kind == "kubelet":
            annotations[keys.POD_CPU_ALLOCS] = _allocations(state)
            annotations[keys.CPU_MANAGER_POLICY] = json.dumps(
                {"policy": "static", "reservedCPUs": str(state.reserved)}
            )
        if kind == "zones":
            annotations, made = {}, replace(made, metadata=replace(made.metadata, labels={}))
        if name in self.damaged:
            annotations |= {key: text for key, text in BROKEN.items() if key in annotations}
        return replace(made, metadata=replace(made.metadata, annotations=annotations))

    # Pods.

    def pod_comes(self, pod: Pod) -> None:
        self.set_pod(replace(pod, spec=replace(pod.spec, scheduler_name=self.core.name)))

    def set_pod(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        version = str(int(self.pods[uid].metadata.resource_version) + 1) if uid in self.pods else "1"
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=version))
        self.pods[uid] = pod
        self.tell("pod", uid, pod)

    def remove_pod(self, uid: str) -> None:
        del self.pods[uid]
        self.tell("pod", uid, None)

    # News.

    def tell(self, kind: str, name: str, new: Object | None) -> None:
        self.news.setdefault(kind, deque()).append((self.now, lambda: self._event(kind, name, new)))

    def _event(self, kind: str, name: str, new: Object | None) -> SchedulerEvent:
        old = self.seen[kind].pop(name, None)
        if new is not None:
            self.seen[kind][name] = new
        if old or new:
            return EVENTS[kind](self.now, old, new)
        node = next(iter(self.nodes.values()))  # The object came and went unseen: nothing new is said.
        return NodeChanged(self.now, node, node)

    def hear(self, kind: str) -> None:
        if self.news.get(kind):
            _, event = self.news[kind].popleft()
            self.handle(event())

    def hear_everything(self) -> None:
        while any(self.news.values()):
            for kind in self.news:
                self.hear(kind)

    def relist(self, kind: str) -> None:
        """A watch broke: what it had to tell is lost, and the list tells the difference, in any order."""
        self.news.pop(kind, None)
        truth = {"node": self.nodes, "topology": self.topologies, "pod": self.pods}[kind]
        for name in [*truth, *(self.seen[kind].keys() - truth.keys())]:
            self.handle(self._event(kind, name, truth.get(name)))

    def duplicate(self, kind: str) -> None:
        """An object is told again, unchanged."""
        for obj in list(self.seen[kind].values())[-3:]:
            self.handle(EVENTS[kind](self.now, obj, obj))

    # The core.

    def restart(self) -> None:
        """Another process takes over: requests of the old one were carried out or not, and it lists all."""
        self.asked.clear()
        self.evictions.clear()
        while self.late:
            self.carry_out_late()
        self.looked_up.clear()
        self.log = []
        self.core = SchedulerCore(self.core.name)
        self.seen = {kind: {} for kind in EVENTS}
        for kind in ("pod", "topology", "node"):
            self.relist(kind)

    def tick(self, seconds: float = 0) -> None:
        self.now += seconds
        while self.late and self.late[0][0] + 60 <= self.now:
            self.carry_out_late()
        if self.core.ready(self.now):
            self.handle(CycleDue(self.now))

    def handle(self, event: SchedulerEvent) -> None:
        instructions = self.core.handle(event)
        self.log.append((event, instructions))
        for instruction in instructions:
            if isinstance(instruction, Bind):
                self.asked.append(instruction)
            elif isinstance(instruction, LookUpPod):
                self.looked_up.append(instruction.pod)
            elif isinstance(instruction, Evict):
                self.evictions.append(instruction)
        for instruction in instructions:
            if isinstance(instruction, Bind):
                self.on_bind(instruction)

    def on_bind(self, bind: Bind) -> None:
        """Called for each new binding; tests check it here."""

    def evict(self, how: str) -> Evict | None:
        """The shell deals with the oldest eviction: ok, or lose."""
        if not self.evictions:
            return None
        evict = self.evictions.popleft()
        uid = evict.victim.metadata.uid
        pod = self.pods.get(uid)
        if how == "lose":
            self.handle(EvictFailed(self.now, evict.preemptor.metadata.uid, uid, "timeout"))
        elif pod is not None:
            if pod.spec.node_name and not pod.ended:
                self.pod_ends(uid)
            self.remove_pod(uid)
        return evict

    def look_up(self, how: str) -> None:
        """The API server answers the oldest read: ok, or lose."""
        if self.looked_up:
            uid = self.looked_up.popleft().metadata.uid
            read = PodLookedUp(self.now, uid, self.pods.get(uid))
            self.handle(LookUpFailed(self.now, uid, "timeout") if how == "lose" else read)

    def answer(self, how: str) -> Bind | None:
        """The API server deals with the oldest binding.

        ok, refuse, throttle, lose (nothing done), late (done within a minute), or mute (done).
        """
        if not self.asked:
            return None
        bind = self.asked.popleft()
        uid = bind.pod.metadata.uid
        pod = self.pods.get(uid)
        if how == "refuse" or pod is None or pod.ended:
            self.handle(BindFailed(self.now, uid, "rejected", "no"))
        elif how == "throttle":
            self.handle(BindFailed(self.now, uid, "throttled", "too many requests", retry_after=2))
        elif how in {"lose", "late"}:
            if how == "late":
                self.late.append((self.now, bind))
            self.handle(BindFailed(self.now, uid, "unknown", "timeout"))
        elif pod.spec.node_name:
            self.handle(BindFailed(self.now, uid, "conflict", "already assigned"))
        else:
            self._carry_out(bind, pod)
            done = (
                BindSucceeded(self.now, uid)
                if how == "ok"
                else BindFailed(self.now, uid, "unknown", "timeout")
            )
            self.handle(done)
        return bind

    def carry_out_late(self) -> None:
        """The API server carries out the oldest binding that timed out, unless its pod has a node."""
        if self.late:
            _, bind = self.late.popleft()
            pod = self.pods.get(bind.pod.metadata.uid)
            if pod is not None and not pod.ended and not pod.spec.node_name:
                self._carry_out(bind, pod)

    def _carry_out(self, bind: Bind, pod: Pod) -> None:
        self.cpus[pod.metadata.uid] = dict(bind.assignments)
        annotations = pod.metadata.annotations | bind.annotations
        bound = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
        self.set_pod(replace(bound, spec=replace(pod.spec, node_name=bind.node)))

    # What nodes do.

    def agent_works(self, name: str) -> None:
        """Admit what is bound and not in yet, in the order of the API server: an agent, or a kubelet."""
        kind = self.kinds.get(name)
        if kind not in {"static", "pools", "kubelet"}:
            return
        for uid, pod in list(self.pods.items()):
            if pod.spec.node_name == name and not pod.ended and uid not in self.agents[name].pods:
                self._admit(name, pod, proposed=kind != "kubelet")
        assert kind == "kubelet" or nodes.validate(self.agents[name]) == []

    def _admit(self, name: str, pod: Pod, *, proposed: bool) -> None:
        try:
            request = translate.request(pod)
        except translate.TranslationError:
            return  # An agent starts nothing that it cannot read.
        request = request if proposed else changed(request, proposal={}, zone=None)
        self.agents[name], decision = nodes.admit(self.agents[name], request)
        self.repicks += proposed and decision.repicked
        if not decision.admitted:
            self.refusals += 1
            self.set_pod(replace(pod, status=replace(pod.status, phase="Failed")))

    def pod_ends(self, uid: str) -> None:
        """Its processes are gone, its CPUs released, and then the API server learns of it."""
        pod = self.pods[uid]
        name = pod.spec.node_name
        if name in self.agents and uid in self.agents[name].pods:
            self.agents[name] = nodes.release(self.agents[name], uid)
        self.set_pod(replace(pod, status=replace(pod.status, phase="Succeeded")))


def _allocations(state: NodeState) -> str:
    """As koordlet reads the kubelet's state: one set for all containers of a pod."""
    cpus: dict[tuple[str, str], CPUSet] = {}
    for entry in state.entries.values():
        cpus[entry.pod, entry.uid] = cpus.get((entry.pod, entry.uid), CPUSet()) | entry.cpus
    return json.dumps(
        [
            {
                "namespace": pod.partition("/")[0],
                "name": pod.partition("/")[2],
                "uid": uid,
                "cpuset": str(held),
                "managedByKubelet": True,
            }
            for (pod, uid), held in cpus.items()
        ]
    )
