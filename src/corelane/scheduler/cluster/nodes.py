"""The scheduler's cache of nodes: what their agents published, with the scheduler's claims added.

A claim is a pod that is bound or about to be bound, and not yet in the node's published ledger. Each node's
`canonical` state is its ledger with the claims admitted into it, by the same function that the agent uses
(see `states`); `state` is the same with UIDs and names, made when it is read. Entries of the ledger end only
when the agent publishes a new one: a pod that ends releases its claim only.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from corelane import quantity
from corelane.kube.objects import Node, NodeResourceTopology, PodDisruptionBudget
from corelane.kube.pod import Pod
from corelane.kube.translate.crane import CraneTopology
from corelane.quantity import QuantityError
from corelane.reasons import Reason
from corelane.scheduler.cluster.columns import Columns, Integers, sorted_values
from corelane.scheduler.cluster.node_info import NodeInfo, taints_of
from corelane.scheduler.cluster.node_kinds import NodeKind
from corelane.scheduler.cluster.objects import ClusterObjects, ImageIndex
from corelane.scheduler.cluster.pod_index import PodIndex
from corelane.scheduler.cluster.pods import PodInfo, Shape, with_labels
from corelane.scheduler.cluster.states import Answer, States
from corelane.workload import PodCPUAffinity
from corelane.workload.selectors import Selector

SUCCESS: Final = "Success"
UNSCHEDULABLE: Final = "Unschedulable"
UNRESOLVABLE: Final = "UnschedulableAndUnresolvable"
WAIT: Final = "Wait"
SKIP: Final = "Skip"
ERROR: Final = "Error"


class ExtensionPoints:
    """Reports when plugins of an extension point are asked; a point may be begun again in an attempt."""

    def start(self) -> None:
        """An attempt begins, or its next portion."""

    def begin(self, point: str) -> None:
        """Plugins are asked, by kube-scheduler's name of the point. Points are never nested."""

    def end(self, status: str = SUCCESS) -> None:
        """They have answered, with kube-scheduler's name of the status."""

    def failed(self) -> None:
        """A plugin of the point that was begun raised an error."""

    def finish(self, profile: str) -> None:
        """The attempt, or its portion, has ended."""

    def now(self) -> float:
        """Return the time, for `alone`."""
        return 0.0

    def alone(self, point: str, profile: str, begun: float) -> None:
        """Plugins of a point that is not part of an attempt were asked since `begun`; they cannot fail."""


_MOST: Final = 256


class PluginFaults:
    """Hands errors on to `report`: plugin, method, error; of one plugin, method and type the first one."""

    def __init__(self) -> None:
        self.report: Callable[[str, str, Exception], None] = lambda _plugin, _method, _error: None
        self._known: set[tuple[str, str, str]] = set()

    def add(self, plugin: str, method: str, error: Exception) -> None:
        key = plugin, method, type(error).__name__
        if key not in self._known and len(self._known) < _MOST:
            self._known.add(key)
            self.report(plugin, method, error)


_WITHOUT_LABELS: Final = frozenset({NodeKind.LEDGER, NodeKind.ZONES, NodeKind.TOTALS})
"""Kinds that are read without the labels of the Node."""


class NodeCache:
    """All nodes, by name and by row."""

    def __init__(self) -> None:
        self.points = ExtensionPoints()
        """Told when plugins are asked about these nodes."""
        self.faults = PluginFaults()
        self.columns = Columns()
        self.topology = self.columns.topology
        self.objects = ClusterObjects()
        self.nominations = Nominations()
        self.budgets = Budgets()
        self.priorities = Priorities()
        self.index = PodIndex(self.topology, self.objects)
        self.states = States()
        self.by_row: list[NodeInfo | None] = []
        """None where the row is free."""
        self.labels_looked_at: set[str] = set()
        """Keys in selectors of pod CPU affinities, of pods and in ledgers."""

        self.images = ImageIndex()
        self._nodes: dict[str, NodeInfo] = {}
        self._node_of_pod: dict[str, str] = {}
        self._stale: dict[str, NodeInfo] = {}
        """Nodes whose columns are not those of their canonical state."""

    def placeable(self) -> Iterator[NodeInfo]:
        """Yield the nodes with a Node object."""
        return (info for info in self._nodes.values() if info.node is not None)

    def count(self) -> int:
        """Return the number of nodes with a Node object."""
        return len(self.columns.live_rows())

    def node(self, name: str) -> NodeInfo:
        """Return a node that exists. Raises KeyError."""
        return self._nodes[name]

    def get(self, name: str) -> NodeInfo | None:
        return self._nodes.get(name)

    def node_of(self, uid: str) -> str | None:
        """Return the name of the node that the pod is counted on."""
        return self._node_of_pod.get(uid)

    def shape_of(self, info: PodInfo) -> Shape:
        """Return a pod's shape, with the labels that pod CPU affinities look at, its own included."""
        self._look_at_rules(info)
        if not self.labels_looked_at or not info.pod.metadata.labels:
            return info.shape
        return with_labels(info.shape, info.pod.metadata.labels, self.labels_looked_at)

    def label_keys(self) -> frozenset[str]:
        """Return the label keys of pods that selectors look at: terms, constraints, pod CPU affinities."""
        keys, nominated = self.index.label_keys, self.nominations.label_keys
        return keys | nominated | self.labels_looked_at if nominated or self.labels_looked_at else keys

    def _look_at(self, affinities: Iterable[PodCPUAffinity]) -> None:
        for one in affinities:
            self.labels_looked_at |= {*one.others.labels, *(rule.key for rule in one.others.expressions)}

    def settle(self, most: int | None = None) -> bool:
        """Bring the columns of CPUs up to date, in at most so many steps; return whether they are.

        A node is one step, and one more for each of its pods.
        """
        steps = 0
        while self._stale and (most is None or steps < most):
            _, info = self._stale.popitem()
            steps += 1 + len(info.pods)
            self.columns.put_state(info.row, info.canonical, info.admitted, unknown=info.unknown)
        return not self._stale

    # Pods.

    def pod(self, uid: str) -> PodInfo | None:
        """Return a pod that is counted on a node."""
        name = self._node_of_pod.get(uid)
        return self._nodes[name].pods[uid] if name is not None else None

    def put_pod(self, name: str, info: PodInfo) -> None:
        """Count a pod on a node, and no longer on another."""
        if self._node_of_pod.get(info.uid, name) != name:
            self.drop_pod(info.uid)
        self._node_of_pod[info.uid] = name
        node = self._at(name)
        old = node.pods.get(info.uid)
        info = info.with_former(old) if old is not None else info
        if old is not None and old.shape is not info.shape:
            self.columns.count(node.row, old.shape, -1)
        if old is None or old.shape is not info.shape:
            self.columns.count(node.row, info.shape, 1)
        if node.put(info):
            self._stale[name] = node
        self.index.put(info, node.row)
        self.priorities.put(info, node.row)
        self._look_at_rules(info)

    def _look_at_rules(self, info: PodInfo) -> None:
        request = info.shape.request
        if request is not None and request.placement_spec.affinities:
            self._look_at(request.placement_spec.affinities)

    def drop_pod(self, uid: str) -> bool:
        """Remove a pod; False if it was on no node."""
        name = self._node_of_pod.pop(uid, None)
        if name is None:
            return False
        node = self._nodes[name]
        self.index.drop(uid)
        self.priorities.drop(uid)
        self.columns.count(node.row, node.pods[uid].shape, -1)
        node.drop(uid)
        self._stale[name] = node
        self._remove_if_empty(name)
        return True

    def claim(self, name: str, info: PodInfo, answer: Answer | None) -> PodInfo:
        """Count a pod that is about to be bound, with what its node's ledger answered; return it so."""
        if answer is None:
            self.put_pod(name, info)
            return info
        decision = answer.decision
        claimed = info.with_decision(decision)
        node = self._nodes[name]
        if claimed.uid in node.pods or node.canonical_for(info.shape) is not answer.before:
            self.put_pod(name, claimed)
            return claimed
        if self._node_of_pod.get(info.uid, name) != name:
            self.drop_pod(info.uid)
        self._node_of_pod[info.uid] = name
        node.claim(claimed, answer)
        self.columns.claim(node.row, info.shape, node.canonical, node.admitted, unknown=node.unknown)
        self._stale.pop(name, None)
        self.index.put(claimed, node.row)
        self.priorities.put(claimed, node.row)
        return claimed

    def refresh_pod(self, pod: Pod) -> None:
        """Replace a pod on a node of which only the status changed."""
        if node := self._node_of_pod.get(pod.metadata.uid):
            info = self._nodes[node]
            if info.refresh(pod):
                self._stale[node] = info

    # Nodes and their topologies.

    def put_node(self, name: str, node: Node | None) -> None:
        info = self._at(name)
        before, info.node = info.settings, node
        info.allocatable = _amounts(node) if node else {}
        self.images.put(info.row, node.status.images if node else ())
        self.priorities.touched()
        info.taints = tuple(taints_of(node)) if node else ()
        unschedulable, labels = (node.spec.unschedulable, node.metadata.labels) if node else (None, None)
        self.columns.put_node(info.row, unschedulable, labels, info.allocatable, info.taints)
        if info.cpus.kind not in _WITHOUT_LABELS and info.settings != before:
            self._publish(info, info.topology)
        self._remove_if_empty(name)

    def put_topology(self, old: NodeResourceTopology | None, new: NodeResourceTopology | None) -> None:
        topology = new or old
        assert topology is not None
        info = self._at(topology.metadata.name)
        self._publish(info, new)
        self._remove_if_empty(info.name)

    def put_crane(self, name: str, crane: CraneTopology | None) -> None:
        """Replace gocrane's object of a node, which counts where no other is published."""
        info = self._at(name)
        info.crane = crane
        if info.topology is None:
            self._publish(info, None)
        self._remove_if_empty(name)

    def put_agent_fault(self, name: str, fault: Reason | None) -> bool:
        """Note why a node's agent counts as ended, None where it runs; return whether that is new."""
        info = self._nodes.get(name)
        if info is None or info.agent_fault == fault:
            return False
        info.agent_fault = fault
        self._stale[name] = info
        return True

    def _publish(self, info: NodeInfo, topology: NodeResourceTopology | None) -> None:
        info.publish(topology)
        if info.ledger is not None:
            for placed in info.ledger.placed_pods.values():
                self._look_at(placed.avoids)
        self._stale[info.name] = info

    def _at(self, name: str) -> NodeInfo:
        info = self._nodes.get(name)
        if info is None:
            row = self.columns.new_row(name)
            info = self._nodes[name] = NodeInfo(name, row, self.states)
            self.by_row += [None] * (row + 1 - len(self.by_row))
            self.by_row[row] = info
            self._stale[name] = info
            self.objects.uses.node_added(name, row)
        return info

    def _remove_if_empty(self, name: str) -> None:
        info = self._nodes[name]
        if info.empty:
            del self._nodes[name]
            self._stale.pop(name, None)
            self.by_row[info.row] = None
            self.objects.uses.node_removed(name)
            self.columns.free_row(info.row)


def _amounts(node: Node) -> dict[str, int]:
    amounts: dict[str, int] = {}
    for name, amount in node.status.allocatable.items():
        try:
            amounts[name] = (quantity.milli if name == "cpu" else quantity.value)(str(amount))
        except QuantityError:
            amounts[name] = 0
    return amounts


# What preemption goes by: nominated nodes, budgets, and amounts of pods of lower priority.


Free: TypeAlias = Callable[[Integers], Integers]
"""Rows to the milliCPU and bytes that are free, two columns."""
NONE: Final = 2**62
"""Above every priority."""
_PODS: Final = 2
_MOST_LEVELS: Final = 16


class Nominations:
    """Pending pods by their nominated node. Upstream: `pkg/scheduler/backend/queue/nominator.go`."""

    def __init__(self) -> None:
        self._nodes: dict[str, str] = {}
        self._pods: dict[str, dict[str, PodInfo]] = {}
        self._victims: dict[str, frozenset[str]] = {}
        self.evicting: set[str] = set()
        """UIDs of pods whose eviction is ordered, and neither seen nor failed."""
        self.label_keys: frozenset[str] = frozenset()
        """Label keys that affinity terms of nominated pods look at."""

    def __len__(self) -> int:
        return len(self._nodes)

    def of(self, uid: str) -> str:
        """Return the name of the pod's nominated node, "" without one."""
        return self._nodes.get(uid, "")

    def on(self, node: str) -> Iterator[PodInfo]:
        """Yield the pods for which the node is nominated."""
        return iter(self._pods.get(node, {}).values())

    def matter_to(self, info: PodInfo) -> bool:
        """Return whether another pod of equal or higher priority has a nominated node."""
        priority = info.pod.spec.priority
        pods = (pod for pods in self._pods.values() for pod in pods.values())
        return any(pod.pod.spec.priority >= priority and pod.uid != info.uid for pod in pods)

    def get(self, uid: str) -> PodInfo | None:
        node = self._nodes.get(uid)
        return self._pods[node][uid] if node is not None else None

    def victims(self, uid: str) -> frozenset[str]:
        """Return the UIDs of the pods that were evicted for a pod, as far as this process did it."""
        return self._victims.get(uid, frozenset())

    def waiting_for(self, victim: str) -> Iterator[str]:
        """Yield the UIDs of the pods for which that pod is evicted."""
        return (uid for uid, victims in self._victims.items() if victim in victims)

    def put(self, info: PodInfo, node: str, victims: Iterable[str] = ()) -> None:
        """Nominate a node, and no other any more."""
        self.drop(info.uid)
        self._victims[info.uid] = frozenset(victims)
        self._nodes[info.uid] = node
        self._pods.setdefault(node, {})[info.uid] = info
        self.label_keys |= info.facts.affinities.keys

    def refresh(self, info: PodInfo) -> None:
        """Replace a nominated pod, if it is one."""
        if node := self._nodes.get(info.uid):
            self._pods[node][info.uid] = info

    def drop(self, uid: str) -> str:
        """Forget a pod's nomination, and return the node's name, "" without one."""
        node = self._nodes.pop(uid, "")
        if node:
            self._victims.pop(uid, None)
            pods = self._pods[node]
            del pods[uid]
            if not pods:
                del self._pods[node]
        return node


class Budgets:
    """All budgets with a selector that can be read and is not empty: others match no pod, as upstream."""

    def __init__(self) -> None:
        self._budgets: dict[tuple[str, str], tuple[PodDisruptionBudget, Selector]] = {}

    def put(self, key: tuple[str, str], budget: PodDisruptionBudget | None) -> None:
        """Add or replace a budget; None removes it."""
        self._budgets.pop(key, None)
        selector = budget.spec.selector if budget else None
        if budget is None or selector is None or not (selector.match_labels or selector.match_expressions):
            return
        with suppress(ValueError):
            self._budgets[key] = budget, selector.compiled()

    def split(self, pods: Iterable[PodInfo]) -> tuple[list[PodInfo], list[PodInfo]]:
        """Return the pods whose eviction violates a budget when they are evicted in this order, and the rest.

        Upstream: `filterPodsWithPDBViolation` of `defaultpreemption`.
        """
        left = {key: budget.status.disruptions_allowed for key, (budget, _) in self._budgets.items()}
        violating: list[PodInfo] = []
        others: list[PodInfo] = []
        for pod in pods:
            (violating if self._violates(pod, left) else others).append(pod)
        return violating, others

    def _violates(self, info: PodInfo, left: dict[tuple[str, str], int]) -> bool:
        meta, violated = info.pod.metadata, False
        if not meta.labels:
            return False
        for key, (budget, selector) in self._budgets.items():
            # The API server has counted the eviction of a disrupted pod already.
            if key[0] != meta.namespace or meta.name in budget.status.disrupted_pods:
                continue
            if selector.matches(meta.labels):
                left[key] -= 1
                violated |= left[key] < 0
        return violated


@dataclass(frozen=True, slots=True)
class Reclaimable:
    """What a pod of one priority could get of each node at best: free, or held by pods of lower priority."""

    rows: Integers
    """Rows of nodes that have pods of lower priority, in ascending order."""
    free: Integers
    """MilliCPU and bytes, two columns; a number above all others where CPUs are amplified."""
    levels: tuple[tuple[int, Integers], ...]
    """Priorities, ascending, and what is free with the pods up to each: the last has all of them."""

    def least_priority(self, pod: PodInfo) -> Integers:
        """Return per row a priority that some victim must have at least; `NONE` where no victims suffice."""
        need = np.array([pod.requests.get("cpu", 0), pod.requests.get("memory", 0)])
        least = np.full(len(self.rows), NONE, np.int64)
        for priority, available in reversed(self.levels):
            least[(available >= need).all(axis=1)] = priority
        return least


class Priorities:
    """Amounts held by pods on nodes, by priority and row."""

    def __init__(self) -> None:
        self._held: dict[int, dict[int, list[int]]] = {}
        self._pods: dict[str, tuple[int, int, int, int]] = {}
        self._answers: dict[int, Reclaimable] = {}

    def put(self, info: PodInfo, row: int) -> None:
        """Count a pod on a node, and on no other."""
        cpu, memory = info.requests.get("cpu", 0), info.requests.get("memory", 0)
        priority = info.pod.spec.priority
        if self._pods.get(info.uid) == (priority, row, cpu, memory):
            return
        self.drop(info.uid)
        self._pods[info.uid] = (priority, row, cpu, memory)
        self._add(priority, row, cpu, memory, 1)

    def drop(self, uid: str) -> None:
        if held := self._pods.pop(uid, None):
            priority, row, cpu, memory = held
            self._add(priority, row, -cpu, -memory, -1)

    def touched(self) -> None:
        """Note that a node has changed."""
        self._answers.clear()

    def lowest(self) -> int | None:
        """Return the lowest priority of all pods on nodes."""
        return min(self._held, default=None)

    def reclaimable(self, priority: int, free: Free) -> Reclaimable:
        """Return what a pod of this priority could get, by what is free now."""
        answer = self._answers.get(priority)
        if answer is None:
            lower = sorted(one for one in self._held if one < priority)
            held = [(one, *self._amounts(one)) for one in lower]
            every = [rows for _, rows, _ in held]
            rows = sorted_values(np.concatenate(every)) if every else np.zeros(0, np.int64)
            available = free(rows).reshape(-1, 2)
            total, levels = available.copy(), []
            size = max(1, -(-len(lower) // _MOST_LEVELS))
            for start in range(0, len(lower), size):
                for _, some, amounts in held[start : start + size]:
                    total[np.searchsorted(rows, some)] += amounts
                levels.append((lower[start], total.copy()))
            answer = self._answers[priority] = Reclaimable(rows, available, tuple(levels))
        return answer

    def _amounts(self, priority: int) -> tuple[Integers, Integers]:
        """The rows of pods of a priority, and the milliCPU and bytes that they hold there."""
        held = self._held[priority]
        amounts = np.array(list(held.values()), np.int64)[:, :_PODS]
        return np.fromiter(held, np.int64, len(held)), amounts

    def _add(self, priority: int, row: int, cpu: int, memory: int, pods: int) -> None:
        self._answers.clear()
        rows = self._held.setdefault(priority, {})
        held = rows.setdefault(row, [0, 0, 0])
        held[0] += cpu
        held[1] += memory
        held[_PODS] += pods
        if not held[_PODS]:
            del rows[row]
            if not rows:
                del self._held[priority]
