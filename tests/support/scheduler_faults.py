"""A world with faults around the scheduler's core: restarts, relists, lost nodes, damage; nodes of all kinds.

Which CPUs pods really have is kept here, apart from what is published: `agents` for corelane's agents and
for kubelets, `cpus` for koordlet, which carries out what pods' annotations say.
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
from corelane.scheduler.events import EvictFailed, NodeChanged, PodChanged, SchedulerEvent, TopologyChanged
from corelane.scheduler.instructions import Bind, Evict, Instruction
from support import objects
from support.scheduler_world import World

KINDS = ("static", "pools", "koordlet", "kubelet", "zones", "totals")
BROKEN = {keys.CPU_ALLOCATIONS: "{", keys.CPU_TOPOLOGY: '{"detail":7}'}


@dataclass
class FaultyWorld(World):
    """Nodes have kinds; `seen` is what the informers have handed on, by kind of object and name."""

    kinds: dict[str, str] = field(default_factory=dict)
    topologies: dict[str, NodeResourceTopology] = field(default_factory=dict)
    """As the API server has them."""
    seen: dict[str, dict[str, Object]] = field(
        default_factory=lambda: {"node": {}, "topology": {}, "pod": {}}
    )
    damaged: set[str] = field(default_factory=set)
    cpus: dict[str, dict[str, CPUSet]] = field(default_factory=dict)
    """CPUs by container of each bound pod, by UID, as the binding promised."""
    log: list[tuple[SchedulerEvent, list[Instruction]]] = field(default_factory=list)
    """Everything the present core was given and answered."""
    evictions: deque[Evict] = field(default_factory=deque)
    """Pods to be evicted, which the shell has yet to do."""

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
        self.tell("node", lambda: self._node_event(name))
        self.damaged.discard(name)
        if self.topologies.pop(name, None):
            self.tell("topology", lambda: self._topology_event(name))
        for uid in [uid for uid, pod in self.pods.items() if pod.spec.node_name == name]:
            self.remove_pod(uid)

    def set_node(self, node: Node) -> None:
        name = node.metadata.name
        self.nodes[name] = node
        self.tell("node", lambda: self._event("node", name, node, NodeChanged))

    def _node_event(self, name: str) -> SchedulerEvent:
        return self._event("node", name, None, NodeChanged)

    def _topology_event(self, name: str) -> SchedulerEvent:
        return self._event("topology", name, None, TopologyChanged)

    def publish(self, name: str) -> None:
        if name not in self.agents or self.kinds[name] == "totals":
            return
        version = int(self.topologies[name].metadata.resource_version) + 1 if name in self.topologies else 1
        made = self._published(name)
        made = replace(made, metadata=replace(made.metadata, resource_version=str(version)))
        self.topologies[name] = made
        self.tell("topology", lambda: self._event("topology", name, made, TopologyChanged))

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

    # News, kept so that relists and duplicates can be made.

    def _event(
        self, kind: str, name: str, new: Object | None, event: Callable[..., SchedulerEvent]
    ) -> SchedulerEvent:
        old = self.seen[kind].pop(name, None)
        if new is not None:
            self.seen[kind][name] = new
        return event(self.now, old, new) if old or new else NodeChanged(self.now, *self._any_node())

    def _any_node(self) -> tuple[Node, Node]:
        """What is left to be said where an object came and went unseen: nothing new."""
        node = next(iter(self.nodes.values()))
        return node, node

    def _hears(self, old: Pod | None, new: Pod | None) -> SchedulerEvent:
        uid = (new or old).metadata.uid  # type: ignore[union-attr]
        if new is None:
            self.heard.pop(uid, None)
        else:
            self.heard[uid] = new
        return self._event("pod", uid, new, PodChanged)

    def relist(self, kind: str) -> None:
        """A watch broke: what it had to tell is lost, and the list tells the difference, in any order."""
        self.news.pop(kind, None)
        truth: dict[str, dict[str, Object]] = {
            "node": dict(self.nodes),
            "topology": dict(self.topologies),
            "pod": dict(self.pods),
        }
        event = {"node": NodeChanged, "topology": TopologyChanged, "pod": PodChanged}[kind]
        for name in [*truth[kind], *(self.seen[kind].keys() - truth[kind].keys())]:
            new = truth[kind].get(name)
            if kind == "pod":
                self.handle(self._hears(None, new) if new else self._hears(self.pods_seen(name), None))
            else:
                self.handle(self._event(kind, name, new, event))

    def pods_seen(self, uid: str) -> Pod:
        return self.seen["pod"][uid]  # type: ignore[return-value]

    def duplicate(self, kind: str) -> None:
        """An object is told again, unchanged."""
        event = {"node": NodeChanged, "topology": TopologyChanged, "pod": PodChanged}[kind]
        for obj in list(self.seen[kind].values())[-3:]:
            self.handle(event(self.now, obj, obj))

    def restart(self) -> None:
        """Another process takes over: requests of the old one were carried out or not, and it lists all."""
        self.asked.clear()
        self.evictions.clear()
        while self.late:
            self.carry_out_late()
        self.looked_up.clear()
        self.log = []
        self.core = SchedulerCore(self.core.name)
        self.seen = {"node": {}, "topology": {}, "pod": {}}
        self.heard.clear()
        for kind in ("pod", "topology", "node"):
            self.relist(kind)

    def handle(self, event: SchedulerEvent) -> None:
        before = len(self.asked)
        recorded: list[Instruction] = []
        original = self.core.handle

        def handle(one: SchedulerEvent) -> list[Instruction]:
            recorded.extend(made := original(one))
            return made

        self.core.handle = handle  # type: ignore[method-assign]
        try:
            super().handle(event)
        finally:
            del self.core.handle  # type: ignore[method-assign]
        self.log.append((event, recorded))
        self.evictions += [one for one in recorded if isinstance(one, Evict)]
        for bind in list(self.asked)[before:]:
            self.on_bind(bind)

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

    def _carry_out(self, bind: Bind, pod: Pod) -> None:
        self.cpus[pod.metadata.uid] = dict(bind.assignments)
        super()._carry_out(bind, pod)

    # What nodes do.

    def agent_works(self, name: str) -> None:
        if name not in self.agents:
            return
        if self.kinds[name] in {"static", "pools"}:
            super().agent_works(name)
        elif self.kinds[name] == "kubelet":
            self._kubelet_works(name)

    def _kubelet_works(self, name: str) -> None:
        for uid, pod in list(self.pods.items()):
            if pod.spec.node_name == name and not pod.ended and uid not in self.agents[name].pods:
                request = changed(translate.request(pod), proposal={}, zone=None)
                self.agents[name], decision = nodes.admit(self.agents[name], request)
                if not decision.admitted:
                    self.refusals += 1
                    self.set_pod(replace(pod, status=replace(pod.status, phase="Failed")))

    def pod_ends(self, uid: str) -> None:
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
