"""What the scheduler knows of the nodes: published facts, and its own claims on top of them.

The agent's ledger is the fact; a pod that is bound or about to be, and is not in the ledger yet, is a claim.
Each node's `state` is the ledger with the claims admitted into it, by the function that the agent uses too.
Facts end only when the agent publishes so: a pod that ends frees its claim, never another's CPUs early.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from corelane import node as nodes
from corelane import quantity
from corelane.cpuset import CPUSet
from corelane.kube import translate
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError
from corelane.node import NodeState, PoolOptions
from corelane.node.decision import Refusal
from corelane.node.pools.classes import pod_class
from corelane.quantity import QuantityError
from corelane.workload import PodRequest

__all__ = ["NodeCache", "NodeInfo", "PodInfo"]

_ANSWERS_KEPT: Final = 64


@dataclass(frozen=True, slots=True)
class PodInfo:
    """A pod with its request; `problem` says why that cannot be read, and then `request` is None."""

    pod: Pod
    request: PodRequest | None
    requests: dict[str, int]
    """CPU in milliCPU, all else in whole units."""
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
        """Equal for pods that ask for the same: all of the ask but who it is."""
        return repr(replace(self.request, uid="", name="")) if self.request else ""

    @property
    def exclusive_cpus(self) -> int:
        """The CPUs that its containers are to have alone under the static policy, all together."""
        return sum(map(self.request.exclusive_cpus, self.request.containers)) if self.request else 0

    @property
    def binds(self) -> bool:
        """Whether it is to have CPUs of its own, as far as a pod can tell without its node."""
        if self.request is None:
            return False
        try:
            return bool(self.exclusive_cpus) or pod_class(self.request, PoolOptions()).bound
        except Refusal:
            return True


@dataclass(slots=True)
class NodeInfo:
    """One node. `node` is None for one known only by its pods or topology; no pod is placed there."""

    name: str
    node: Node | None = None
    ledger: NodeState | None = None
    """What its agent published."""
    problem: str = ""
    """Why what it published cannot be used."""
    koordlets: NodeResourceTopology | None = None
    """What koordlet published of it, which the labels of its Node add to."""
    pods: dict[str, PodInfo] = field(default_factory=dict)
    requested: dict[str, int] = field(default_factory=dict)
    allocatable: dict[str, int] = field(default_factory=dict)
    state: NodeState | None = None
    """The ledger and the claims."""
    _answers: dict[str, tuple[NodeState, nodes.Decision]] = field(default_factory=dict)
    """What `admission` answered since `state` was last another."""

    def admission(self, request: PodRequest, shape: str) -> tuple[NodeState, nodes.Decision] | None:
        """The ledger's answer to an ask, and the state that would follow; None where there is no ledger.

        It is kept for asks of the same shape (see `PodInfo.shape`): replicas differ in name only, and a node
        on which nothing has changed answers them all alike.
        """
        if self.state is None:
            return None
        answer = self._answers.get(shape)
        if answer is None:
            if len(self._answers) >= _ANSWERS_KEPT:
                self._answers.clear()
            answer = self._answers[shape] = nodes.admit(self.state, request)
        return answer

    def put(self, info: PodInfo) -> None:
        """Count a pod in; one that is in already is counted anew."""
        known = self.pods.get(info.uid)
        self.pods[info.uid] = info
        if known is not None:
            self._count(known, -1)
        self._count(info, 1)
        if known is not None and known.request != info.request:
            self.rebuild()
        elif known is None:
            self._become(self._admitted(self.state, info))

    def drop(self, uid: str) -> bool:
        """Count a pod out; False if it was not in."""
        known = self.pods.pop(uid, None)
        if known is None:
            return False
        self._count(known, -1)
        self.rebuild()
        return True

    def publish(self, ledger: NodeState | None, problem: str = "") -> None:
        """Take over what the agent published."""
        self.ledger, self.problem = ledger, problem
        self.rebuild()

    def rebuild(self) -> None:
        """Admit all claims into the ledger again, in the order in which they came."""
        state = self.ledger
        for info in self.pods.values():
            state = self._admitted(state, info)
        self._become(state)

    def _become(self, state: NodeState | None) -> None:
        if state is not self.state:
            self.state = state
            self._answers.clear()

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
        """Whether it offers more CPUs than it has."""
        config = self.state.config if self.state else None
        return config is not None and config.policy == "pools" and config.pools.amplification > 1

    @property
    def empty(self) -> bool:
        return self.node is None and not self.pods and self.ledger is None and not self.problem


class NodeCache:
    """All nodes by name."""

    def __init__(self) -> None:
        self._nodes: dict[str, NodeInfo] = {}
        self._where: dict[str, str] = {}

    def placeable(self) -> Iterator[NodeInfo]:
        """The nodes that exist as Node objects."""
        return (info for info in self._nodes.values() if info.node is not None)

    def get(self, name: str) -> NodeInfo | None:
        return self._nodes.get(name)

    def node_of(self, uid: str) -> str | None:
        """Where a pod is counted in."""
        return self._where.get(uid)

    def put_pod(self, name: str, info: PodInfo) -> None:
        """Count a pod in on a node, and out wherever else it was."""
        if self._where.get(info.uid, name) != name:
            self.drop_pod(info.uid)
        self._where[info.uid] = name
        self._at(name).put(info)

    def drop_pod(self, uid: str) -> bool:
        """Count a pod out; False if it was nowhere."""
        name = self._where.pop(uid, None)
        if name is None:
            return False
        self._nodes[name].drop(uid)
        self._forget_if_empty(name)
        return True

    def claim(
        self, name: str, info: PodInfo, assignments: Mapping[str, CPUSet], zone: CPUSet | None = None
    ) -> None:
        """Count in a pod that is about to be bound, with the CPUs and the NUMA nodes proposed for it."""
        assert info.request is not None
        self.put_pod(name, replace(info, request=replace(info.request, proposal=assignments, zone=zone)))

    def put_node(self, name: str, node: Node | None) -> None:
        info = self._at(name)
        before, info.node = info.labels, node
        info.allocatable = _amounts(node) if node else {}
        if info.koordlets is not None and info.labels != before:
            info.publish(*_read(info.koordlets, info.koordlets, info))
        self._forget_if_empty(name)

    def put_topology(self, old: NodeResourceTopology | None, new: NodeResourceTopology | None) -> None:
        known = new or old
        assert known is not None
        info = self._at(known.metadata.name)
        info.koordlets = new if new is not None and translate.is_koordlets(new) else None
        info.publish(*_read(old, new, info))
        self._forget_if_empty(info.name)

    def _at(self, name: str) -> NodeInfo:
        return self._nodes.setdefault(name, NodeInfo(name))

    def _forget_if_empty(self, name: str) -> None:
        if self._nodes[name].empty:
            del self._nodes[name]


def _read(
    old: NodeResourceTopology | None, new: NodeResourceTopology | None, info: NodeInfo
) -> tuple[NodeState | None, str]:
    if new is None:
        return None, ""
    known = info.ledger
    same = known is not None and old is not None and translate.same_machine(old, new)
    try:
        return translate.state_from_topology(new, known.machine if same and known else None, info.labels), ""
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
