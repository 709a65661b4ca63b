"""A scheduler's core without I/O: its clock, its nodes and their agents, its pods, and what it decides."""

from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec.structs import replace

from corelane import node as nodes
from corelane.kube import translate
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.node.ledger import NodeState
from corelane.scheduler.cluster.node_info import NodeInfo
from corelane.scheduler.cluster.nodes import NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.core import SchedulerCore
from corelane.scheduler.events import BindSucceeded, CycleDue, NodeChanged, PodChanged, TopologyChanged
from corelane.scheduler.framework.plugin import Cycle
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Bind, Evict, Instruction, RecordPodEvent, SetCondition
from corelane.scheduler.plugins import default
from support import objects

MOST_CYCLES = 20_000


def profile_with(*plugins: Any, name: str = "s") -> Profile:
    """The default profile with these plugins, each in the place of one of its name or at the end."""
    own = {plugin.name: plugin for plugin in plugins}
    usual = default.profile(name)
    kept = tuple(own.pop(plugin.name, plugin) for plugin in usual.plugins)
    return Profile(name, (*kept, *own.values()), usual.weights)


class CoreLab:
    """What the API server shows is told to the core at once, and remembered for the next event about it."""

    def __init__(
        self,
        *nodes: Node | str,
        spec: str = "",
        profiles: tuple[Profile, ...] = (),
        core: SchedulerCore | None = None,
    ) -> None:
        self.core = core or SchedulerCore(profiles=profiles)
        self.now = 0.0
        self.done: list[Instruction] = []
        """All instructions so far."""
        self.nodes: dict[str, Node] = {}
        self.agents: dict[str, NodeState] = {}
        self.pods: dict[str, Pod] = {}
        """By UID."""
        self.has(*nodes, spec=spec)

    def tell(self, event: Any) -> list[Instruction]:
        done = self.core.handle(event)
        self.done += done
        return done

    # Nodes.

    def has(self, *nodes: Node | str, spec: str = "", **config: Any) -> "CoreLab":
        """Add or change nodes; with a `spec`, each has a ledger of that machine and configuration."""
        for node in nodes:
            node = objects.node(node) if isinstance(node, str) else node
            name = node.metadata.name
            self.tell(NodeChanged(self.now, self.nodes.get(name), node))
            self.nodes[name] = node
            if spec:
                self.publish(name, objects.state(spec, name, **config))
        return self

    def change(self, name: str, **fields: Any) -> list[Instruction]:
        """Change fields of the node's spec (`unschedulable`, `taints`), else of the node."""
        node = self.nodes[name]
        of_spec = {key: fields.pop(key) for key in ("unschedulable", "taints") if key in fields}
        new = replace(node, **({"spec": replace(node.spec, **of_spec)} if of_spec else {}), **fields)
        self.nodes[name] = new
        return self.tell(NodeChanged(self.now, node, new))

    def lose(self, name: str) -> None:
        self.tell(NodeChanged(self.now, self.nodes.pop(name), None))

    def publish(self, name: str, state: NodeState) -> None:
        old = objects.topology(name, self.agents[name]) if name in self.agents else None
        self.agents[name] = state
        self.tell(TopologyChanged(self.now, old, objects.topology(name, state)))

    def node(self, name: str = "n1") -> NodeInfo:
        return self.core.cluster.node(name)

    def recorded(self, case: dict[str, Any], pods: list[Any], name: str = "n") -> None:
        """Add a node of a recorded case: its Node and NodeResourceTopology, and pods that are bound there."""
        node, nrt = (
            msgspec.convert(case[key], kind) for key, kind in (("node", Node), ("nrt", NodeResourceTopology))
        )
        self.has(replace(node, metadata=replace(node.metadata, name=name)))
        self.tell(TopologyChanged(self.now, None, replace(nrt, metadata=replace(nrt.metadata, name=name))))
        for pod in msgspec.convert(pods, list[Pod]):
            unique = f"{name}-{pod.metadata.uid}"
            self.on(name, replace(pod, metadata=replace(pod.metadata, name=unique, uid=unique)))

    # Pods.

    def seen(self, pod: Pod) -> list[Instruction]:
        """The API server shows the pod."""
        old = self.pods.get(pod.metadata.uid)
        self.pods[pod.metadata.uid] = pod
        return self.tell(PodChanged(self.now, old, pod))

    def delete(self, pod: Pod | str) -> list[Instruction]:
        """Delete a pod, which may be given by its name."""
        uid = f"uid-{pod}" if isinstance(pod, str) else pod.metadata.uid
        return self.tell(PodChanged(self.now, self.pods.pop(uid), None))

    def add(self, *pods: Pod, **spec: Any) -> Pod:
        """Create pods that this scheduler is to place, and return the last one."""
        for pod in pods:
            name = pod.spec.scheduler_name or self.core.name
            pod = replace(pod, spec=replace(pod.spec, **({"scheduler_name": name} | spec)))
            self.seen(pod)
        return pod

    def run(self, seconds: float = 0) -> list[Instruction]:
        """Let time pass, then do all that is due; return what was decided."""
        self.now += seconds
        done: list[Instruction] = []
        for _ in range(MOST_CYCLES):
            if not self.core.ready(self.now):
                return done
            done += self.tell(CycleDue(self.now))
        raise AssertionError("the core never rests")

    def place(self, *pods: Pod, **spec: Any) -> list[Instruction]:
        self.add(*pods, **spec)
        return self.run()

    def bound(self, *pods: Pod, seconds: float = 0) -> list[str]:
        """Create pods, let time pass, and return the nodes of all pods that are bound then."""
        if pods:
            self.add(*pods)
        return [bind.node for bind in binds(self.run(seconds))]

    def show(self, bind: Bind) -> Pod:
        """The API server shows the pod with its node and annotations."""
        return self.on(bind.node, bind.pod, bind.annotations)

    def on(self, node: str, pod: Pod, annotations: Any = None, **spec: Any) -> Pod:
        """A pod that is bound to the node."""
        meta = replace(pod.metadata, annotations={**pod.metadata.annotations, **(annotations or {})})
        placed = replace(pod, metadata=meta, spec=replace(pod.spec, node_name=node, **spec))
        self.seen(placed)
        return placed

    def accept(self, bind: Bind) -> Pod:
        """The API server accepts a binding, and shows it."""
        self.tell(BindSucceeded(self.now, bind.pod.metadata.uid))
        return self.show(bind)

    def admit(self, pod: Pod) -> None:
        """The agent of the pod's node admits it, and publishes that."""
        name = pod.spec.node_name
        state, decision = nodes.admit(self.agents[name], translate.request(pod))
        assert decision.admitted, decision.message
        assert not decision.repicked
        self.publish(name, state)

    def release(self, pod: Pod) -> None:
        """The agent of the pod's node has released its CPUs."""
        name = pod.spec.node_name
        self.publish(name, nodes.release(self.agents[name], pod.metadata.uid))


def cycle_of(pod: Pod, cluster: NodeCache) -> Cycle:
    """A new attempt to place the pod, before its pre-filters."""
    info = PodInfo.of(pod)
    return Cycle(info, info.shape, cluster=cluster)


def binds(done: Iterable[Instruction]) -> list[Bind]:
    return [one for one in done if isinstance(one, Bind)]


def only_bind(done: Iterable[Instruction]) -> Bind:
    (bind,) = binds(done)
    return bind


def names(done: Iterable[Instruction]) -> list[str]:
    """Names of the pods that are bound."""
    return [bind.pod.metadata.name for bind in binds(done)]


def placed(done: Iterable[Instruction]) -> dict[str, str]:
    """Node by the name of the pod that is bound."""
    return {bind.pod.metadata.name: bind.node for bind in binds(done)}


def evicted(done: Iterable[Instruction]) -> list[str]:
    return [one.victim.metadata.name for one in done if isinstance(one, Evict)]


def conditions(done: Iterable[Instruction]) -> list[SetCondition]:
    return [one for one in done if isinstance(one, SetCondition)]


def events(done: Iterable[Instruction]) -> list[RecordPodEvent]:
    return [one for one in done if isinstance(one, RecordPodEvent)]


def message(done: Iterable[Instruction]) -> str:
    """The reason why a pod was not placed, without what preemption says."""
    (condition,) = conditions(done)
    return condition.message.partition(" preemption:")[0]
