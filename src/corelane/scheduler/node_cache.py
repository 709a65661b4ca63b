"""The scheduler's cache of nodes: what their agents published, with the scheduler's claims added.

A claim is a pod that is bound or about to be bound, and not yet in the node's published ledger.
Each node's `state` is its ledger with the claims admitted into it, by the same function that the agent uses.
Entries of the ledger end only when the agent publishes a new one: a pod that ends releases its claim only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from corelane import node as nodes
from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.meta import condition
from corelane.kube.objects import Node, NodeResourceTopology, Taint
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError
from corelane.node import NodeState, PoolOptions
from corelane.node.pools.classes import pod_class
from corelane.quantity import QuantityError
from corelane.reasons import Refusal
from corelane.workload import PodRequest

_CACHED_ADMISSIONS: Final = 64


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod and its request; `request` is None where it is invalid, and `problem` says why."""

    pod: Pod
    request: PodRequest | None
    requests: dict[str, int]
    """Resource to amount: CPU in milliCPU, others in whole units."""
    problem: str = ""

    @classmethod
    def of(cls, pod: Pod) -> "PodInfo":
        try:
            requests = translate.requests(pod)
        except TranslationError as error:
            return cls(pod, None, {}, str(error))
        try:
            return cls(pod, translate.request(pod), requests)
        except TranslationError as error:
            return cls(pod, None, requests, str(error))

    @property
    def uid(self) -> str:
        return self.pod.metadata.uid

    @property
    def shape(self) -> str:
        """A text that is equal for pods with equal requests: all of the request but UID and name."""
        return repr(replace(self.request, uid="", name="")) if self.request else ""

    @property
    def exclusive_cpus(self) -> int:
        """Exclusive CPUs of all containers together, under the static policy."""
        return sum(map(self.request.exclusive_cpus, self.request.containers)) if self.request else 0

    @property
    def binds(self) -> bool:
        """Whether the pod requests exclusive CPUs; the node's settings are not considered."""
        if self.request is None:
            return False
        try:
            return bool(self.exclusive_cpus) or pod_class(self.request, PoolOptions()).bound
        except Refusal:
            return True


@dataclass(slots=True)
class NodeInfo:
    """One node. `node` is None while only pods or a topology name it; no pod is placed there."""

    name: str
    node: Node | None = None
    ledger: NodeState | None = None
    """As its agent published it."""
    problem: str = ""
    """Why the published topology cannot be used."""
    koordlets: NodeResourceTopology | None = None
    """Topology that koordlet published; the labels of the Node add to it."""
    pods: dict[str, PodInfo] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)
    state: NodeState | None = None
    """The ledger and the claims."""
    taints: tuple[Taint, ...] = ()
    """The Node's taints, and those that follow from its conditions."""
    _admissions: dict[str, tuple[NodeState, nodes.Decision]] = field(default_factory=dict)
    """Results of `admission` since `state` changed, by shape."""

    def admission(self, request: PodRequest, shape: str) -> tuple[NodeState, nodes.Decision] | None:
        """Return the state with the pod admitted, and the decision; None without a ledger.

        Results are cached by `PodInfo.shape`: replicas differ in name only, and get equal answers until the
        node's state changes.
        """
        if self.state is None:
            return None
        result = self._admissions.get(shape)
        if result is None:
            if len(self._admissions) >= _CACHED_ADMISSIONS:
                self._admissions.clear()
            result = self._admissions[shape] = nodes.admit(self.state, request)
        return result

    def put(self, info: PodInfo) -> None:
        """Add a pod, or replace it."""
        old = self.pods.get(info.uid)
        self.pods[info.uid] = info
        if old is not None:
            self._count(old, -1)
        self._count(info, 1)
        if old is None:
            self._set_state(self._admitted(self.state, info))
        elif old.request != info.request:
            self.rebuild()

    def drop(self, uid: str) -> None:
        """Remove a pod."""
        self._count(self.pods.pop(uid), -1)
        self.rebuild()

    def publish(self, ledger: NodeState | None, problem: str = "") -> None:
        """Replace the ledger."""
        self.ledger, self.problem = ledger, problem
        self.rebuild()

    def rebuild(self) -> None:
        """Admit all pods into the ledger again, in the order in which they were added."""
        state = self.ledger
        for info in self.pods.values():
            state = self._admitted(state, info)
        self._set_state(state)

    def _set_state(self, state: NodeState | None) -> None:
        if state is not self.state:
            self.state = state
            self._admissions.clear()

    @staticmethod
    def _admitted(state: NodeState | None, info: PodInfo) -> NodeState | None:
        if state is None or info.request is None:
            return state
        return nodes.admit(state, info.request)[0]

    def _count(self, info: PodInfo, sign: int) -> None:
        for name, amount in info.requests.items():
            self.requested[name] = self.requested.get(name, 0) + sign * amount

    @property
    def labels(self) -> Mapping[str, str]:
        return self.node.metadata.labels if self.node else {}

    @property
    def amplified(self) -> bool:
        """Whether more CPUs are allocatable than the node has."""
        config = self.state.config if self.state else None
        return config is not None and config.policy == "pools" and config.pools.amplification > 1

    @property
    def empty(self) -> bool:
        return self.node is None and not self.pods and self.ledger is None and not self.problem


class NodeCache:
    """All nodes, by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._node_of_pod: dict[str, str] = {}

    def placeable(self) -> Iterator[NodeInfo]:
        """Yield the nodes with a Node object."""
        return (info for info in self._nodes.values() if info.node is not None)

    def get(self, name: str) -> NodeInfo | None:
        return self._nodes.get(name)

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node that the pod is counted on."""
        return self._node_of_pod.get(uid)

    def put_pod(self, name: str, info: PodInfo) -> None:
        """Count a pod on a node, and no longer on another."""
        if self._node_of_pod.get(info.uid, name) != name:
            self.drop_pod(info.uid)
        self._node_of_pod[info.uid] = name
        self._at(name).put(info)

    def drop_pod(self, uid: str) -> bool:
        """Remove a pod; False if it was on no node."""
        name = self._node_of_pod.pop(uid, None)
        if name is None:
            return False
        self._nodes[name].drop(uid)
        self._remove_if_empty(name)
        return True

    def claim(
        self, name: str, info: PodInfo, assignments: Mapping[str, CPUSet], zone: CPUSet | None = None
    ) -> None:
        """Count a pod that is about to be bound, with the CPUs and NUMA nodes proposed for it."""
        assert info.request is not None
        self.put_pod(name, replace(info, request=replace(info.request, proposal=assignments, zone=zone)))

    def put_node(self, name: str, node: Node | None) -> None:
        info = self._at(name)
        before, info.node = info.labels, node
        info.allocatable = _amounts(node) if node else {}
        info.taints = tuple(taints_of(node)) if node else ()
        if info.koordlets is not None and info.labels != before:
            info.publish(*_read(info.koordlets, info.koordlets, info))
        self._remove_if_empty(name)

    def put_topology(self, old: NodeResourceTopology | None, new: NodeResourceTopology | None) -> None:
        topology = new or old
        assert topology is not None
        info = self._at(topology.metadata.name)
        info.koordlets = new if new is not None and translate.is_koordlets(new) else None
        info.publish(*_read(old, new, info))
        self._remove_if_empty(info.name)

    def _at(self, name: str) -> NodeInfo:
        return self._nodes.setdefault(name, NodeInfo(name))

    def _remove_if_empty(self, name: str) -> None:
        if self._nodes[name].empty:
            del self._nodes[name]


def _read(
    old: NodeResourceTopology | None, new: NodeResourceTopology | None, info: NodeInfo
) -> tuple[NodeState | None, str]:
    if new is None:
        return None, ""
    same = info.ledger and old and translate.same_machine(old, new)
    try:
        machine = info.ledger.machine if info.ledger and same else None
        return translate.state_from_topology(new, machine, info.labels), ""
    except TranslationError as error:
        return None, str(error)


def _amounts(node: Node) -> dict[str, int]:
    amounts = {}
    for name, amount in node.status.allocatable.items():
        try:
            amounts[name] = (quantity.milli if name == "cpu" else quantity.value)(str(amount))
        except QuantityError:
            amounts[name] = 0
    return amounts


def taints_of(node: Node) -> Iterator[Taint]:
    """Yield the node's taints, and those that upstream's node controller derives from its conditions.

    On the embedded server they may be missing, and placement must not depend on them.
    """
    yield from node.spec.taints
    present = {taint.key for taint in node.spec.taints}
    yield from (Taint(key, effect="NoSchedule") for key in _derived_taints(node) if key not in present)


def _derived_taints(node: Node) -> Iterator[str]:
    ready = condition(node.status.conditions, "Ready")
    if ready is not None and ready.status != "True":
        yield f"node.kubernetes.io/{'not-ready' if ready.status == 'False' else 'unreachable'}"
    disk = condition(node.status.conditions, "DiskPressure")
    if disk is not None and disk.status == "True":
        yield "node.kubernetes.io/disk-pressure"
