"""A cluster around the scheduler's core: an API server, agents with ledgers of their own, and late news.

What is true changes at once; the core hears of it later, each kind in its own order, as from three watches:
of pods at most CONFLICT_SECONDS later, which the core relies on.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.node import NodeState
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    CycleDue,
    NodeChanged,
    PodChanged,
    SchedulerEvent,
    TopologyChanged,
)
from corelane.scheduler.instructions import Bind
from corelane.scheduler.scheduling import CONFLICT_SECONDS, SchedulerCore
from support import objects


@dataclass
class World:
    core: SchedulerCore = field(default_factory=SchedulerCore)
    now: float = 0.0
    nodes: dict[str, Node] = field(default_factory=dict)
    agents: dict[str, NodeState] = field(default_factory=dict)
    pods: dict[str, Pod] = field(default_factory=dict)
    """By UID, as the API server has them."""
    news: dict[str, deque[tuple[float, Callable[[], SchedulerEvent]]]] = field(default_factory=dict)
    """By kind, each with the time of the change."""
    asked: deque[Bind] = field(default_factory=deque)
    """Bindings without an answer yet."""
    heard: dict[str, Pod] = field(default_factory=dict)
    """The pods as the core knows them."""
    published: dict[str, NodeState] = field(default_factory=dict)
    repicks: int = 0
    refusals: int = 0

    # What happens.

    def node_comes(self, name: str, spec: str, cpus: int) -> None:
        state = objects.state(spec, name)
        self.agents[name] = state
        self.set_node(objects.node(name, cpus, memory="64Gi"))
        self.publish(name)

    def set_node(self, node: Node) -> None:
        old = self.nodes.get(node.metadata.name)
        self.nodes[node.metadata.name] = node
        self.tell("node", lambda: NodeChanged(self.now, old, node))

    def publish(self, name: str) -> None:
        state, old = self.agents[name], self.published.get(name)
        self.published[name] = state
        before = objects.topology(name, old) if old else None
        after = objects.topology(name, state)
        self.tell("topology", lambda: TopologyChanged(self.now, before, after))

    def pod_comes(self, pod: Pod) -> None:
        self.set_pod(replace(pod, spec=replace(pod.spec, scheduler_name=self.core.name)))

    def set_pod(self, pod: Pod) -> None:
        old = self.pods.get(pod.metadata.uid)
        version = str(int(old.metadata.resource_version) + 1) if old else "1"
        pod = replace(pod, metadata=replace(pod.metadata, resource_version=version))
        self.pods[pod.metadata.uid] = pod
        self.tell("pod", lambda: self._hears(old, pod))

    def remove_pod(self, uid: str) -> None:
        old = self.pods.pop(uid)
        self.tell("pod", lambda: self._hears(old, None))

    def _hears(self, old: Pod | None, new: Pod | None) -> SchedulerEvent:
        if new is None:
            assert old is not None
            del self.heard[old.metadata.uid]
        else:
            self.heard[new.metadata.uid] = new
        return PodChanged(self.now, old, new)

    def tell(self, kind: str, event: Callable[[], SchedulerEvent]) -> None:
        self.news.setdefault(kind, deque()).append((self.now, event))

    # What the agents do.

    def agent_works(self, name: str) -> None:
        """Admit what is bound and not in yet; as an agent does, in the order of the API server."""
        bound = [pod for pod in self.pods.values() if pod.spec.node_name == name and not pod.ended]
        for pod in bound:
            if pod.metadata.uid not in self.agents[name].pods:
                self._admit(name, pod)
        assert nodes.validate(self.agents[name]) == []

    def _admit(self, name: str, pod: Pod) -> None:
        self.agents[name], decision = nodes.admit(self.agents[name], translate.request(pod))
        self.repicks += decision.repicked
        if not decision.admitted:
            self.refusals += 1
            self.set_pod(replace(pod, status=replace(pod.status, phase="Failed")))

    def pod_ends(self, uid: str) -> None:
        """Its processes are gone, its CPUs released, and then the API server learns of it."""
        pod = self.pods[uid]
        if pod.spec.node_name:
            self.agents[pod.spec.node_name] = nodes.release(self.agents[pod.spec.node_name], uid)
        self.set_pod(replace(pod, status=replace(pod.status, phase="Succeeded")))

    # What the core does.

    def hear(self, kind: str) -> None:
        if self.news.get(kind):
            _, event = self.news[kind].popleft()
            self.handle(event())

    def hear_everything(self) -> None:
        while any(self.news.values()):
            for kind in self.news:
                self.hear(kind)

    def tick(self, seconds: float = 0) -> None:
        self.now += seconds
        while self.news.get("pod") and self.news["pod"][0][0] + CONFLICT_SECONDS <= self.now:
            self.hear("pod")
        if self.core.ready(self.now):
            self.handle(CycleDue(self.now))

    def handle(self, event: SchedulerEvent) -> None:
        for instruction in self.core.handle(event):
            if isinstance(instruction, Bind):
                self.asked.append(instruction)

    def answer(self, how: str) -> Bind | None:
        """The API server deals with the oldest binding: ok, refuse, lose (nothing done), or mute (done)."""
        if not self.asked:
            return None
        bind = self.asked.popleft()
        uid = bind.pod.metadata.uid
        pod = self.pods.get(uid)
        if how == "refuse" or pod is None or pod.ended:
            self.handle(BindFailed(self.now, uid, "rejected", "no"))
        elif how == "lose":
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

    def _carry_out(self, bind: Bind, pod: Pod) -> None:
        annotations = pod.metadata.annotations | bind.annotations
        bound = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
        self.set_pod(replace(bound, spec=replace(pod.spec, node_name=bind.node)))
