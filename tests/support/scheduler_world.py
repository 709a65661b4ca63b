"""A cluster around the scheduler's core: an API server, agents with ledgers of their own, and late news.

What is true changes at once; the core hears of it later, each kind in its own order, as from three watches.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import (
    BindFailed,
    BindSucceeded,
    CycleDue,
    LookUpFailed,
    NodeChanged,
    PodChanged,
    PodLookedUp,
    SchedulerEvent,
    TopologyChanged,
)
from corelane.scheduler.instructions import Bind, LookUpPod
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
    late: deque[tuple[float, Bind]] = field(default_factory=deque)
    """Bindings that timed out at that time, and may be carried out within a minute."""
    looked_up: deque[Pod] = field(default_factory=deque)
    """Pods to be read without an answer yet."""
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
        try:
            request = translate.request(pod)
        except translate.TranslationError:
            return  # An agent starts nothing that it cannot read.
        self.agents[name], decision = nodes.admit(self.agents[name], request)
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
        while self.late and self.late[0][0] + 60 <= self.now:
            self.carry_out_late()
        if self.core.ready(self.now):
            self.handle(CycleDue(self.now))

    def handle(self, event: SchedulerEvent) -> None:
        for instruction in self.core.handle(event):
            if isinstance(instruction, Bind):
                self.asked.append(instruction)
            elif isinstance(instruction, LookUpPod):
                self.looked_up.append(instruction.pod)

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
        annotations = pod.metadata.annotations | bind.annotations
        bound = replace(pod, metadata=replace(pod.metadata, annotations=annotations))
        self.set_pod(replace(bound, spec=replace(pod.spec, node_name=bind.node)))
