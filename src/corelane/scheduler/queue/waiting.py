"""Pods without a node: their group and sort key, the pods that are ready, and those that back off.

Ready pods stand in lines: new ones, those that a change may help, those tried again by time, doubtful ones.
The first element of a pod's sort key is its level (for PrioritySort its priority): a pod of a better level
always comes first. Within a level the least key comes first, whatever its line, until an attempt fails: then
it is the next line's turn. So pods that are tried again in vain, however many and however often, delay a new
pod by no more attempts than there are new pods before it, and the same holds for each line.

New pods that fit nowhere can be many too. Once attempts have failed for a while, every second new pod that is
tried is the newest: what comes last does not wait for all that failed before it. Doubtful are pods that
certainly do not fit now: they are tried while no other is ready, and now and then if no better level waits.

The numbers of the back-off are kube-scheduler's. A pod that no node fits backs off by the number of such
attempts, a pod whose attempt failed otherwise (an error) by the number of errors in a row. While no other pod
is ready, pods of the first kind are tried before their back-off ends (upstream: SchedulerPopFromBackoffQ);
those with errors never are.
"""

import heapq
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum, auto
from functools import total_ordering
from typing import Any, Final, TypeAlias

import msgspec
from msgspec.structs import replace

from corelane.scheduler.cluster.labels import UNUSED
from corelane.scheduler.cluster.nodes import NodeCache, PluginFaults
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, members
from corelane.scheduler.framework.checked import is_ours
from corelane.scheduler.framework.plugin import QueueSortPlugin, Rejection

SortKey: TypeAlias = tuple[Any, ...]
_SPARE: Final = 64
MOST_PORTIONS: Final = 16
"""Of one attempt, 150 to 400 ms; then other pods come before its next one."""


class QueuePlace(Enum):
    """The place of a pod in the queue."""

    GATED = auto()
    """A PreEnqueue plugin keeps it from being tried."""
    READY = auto()
    BACKING_OFF = auto()
    PARKED = auto()
    """No node fits: it waits for a change."""
    OUT = auto()
    """Outside, while it is tried or bound."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an attempt failed: the plugins that rejected the pod, and the message of its condition."""

    plugins: frozenset[str]
    message: str
    sequence: int
    """Number of changes in the cluster before the attempt."""


@dataclass(slots=True, eq=False)
class Waiting:
    """A pod without a node, with the history of its attempts. Times are in seconds, of the events' clock."""

    info: PodInfo
    place: QueuePlace = QueuePlace.OUT
    attempts: int = 0
    failures: int = 0
    """Attempts that found no node."""
    errors: int = 0
    """Attempts in a row that failed otherwise, as by a rejected binding."""
    ready_at: float = 0.0
    """When its back-off ends."""
    group: Hashable = None
    """Of equal pods; None if not known yet."""
    grouping: int = 0
    """Version of the keys of groups when it was found."""
    alone: bool = False
    """What was found out for it holds for no other pod."""
    trial: bool = False
    """A change may help its group, and this pod is to find out."""
    started: int = 0
    """Number of changes in the cluster before its attempt."""
    continued: bool = False
    """Its attempt is not finished; changes count from when it was started."""
    portions: int = 0
    """Of its attempt, so far."""
    flushed: bool = False
    """It is tried because nothing else had it tried for too long."""
    rejected: bool = False
    """All nodes rejected it for many reasons in the portion before: this one goes on, whatever changed."""
    gate: Rejection | None = None
    """Of the PreEnqueue plugin that keeps it from being tried."""
    nominated: str = ""
    """Name of the node where pods were evicted for it."""
    reason: str = ""
    """Why the last attempt failed: the message of its condition."""
    event: str = ""
    """Message of the last event about it."""
    event_at: float = float("-inf")
    number: int = 0
    """Number of its latest heap entry; entries with older numbers are void."""

    @property
    def uid(self) -> str:
        return self.info.uid

    @property
    def labels(self) -> Mapping[str, str]:
        return self.info.pod.metadata.labels

    @property
    def pending_because(self) -> str:
        """Why it has no node yet."""
        if self.gate is not None:
            return "; ".join(map(str, self.gate.reasons))
        return self.reason or "queued"


_OF_REPLICAS: Final = frozenset(
    {
        "apps.kubernetes.io/pod-index",
        "batch.kubernetes.io/job-completion-index",
        "statefulset.kubernetes.io/pod-name",
    }
)
"""Labels in which the replicas of one workload differ."""


def group_key(info: PodInfo, looked_at: frozenset[str] = frozenset()) -> Hashable:
    """Return what is equal for all pods of a group; labels of replicas only where they are looked at."""
    meta, spec = info.pod.metadata, info.pod.spec
    own_claims = meta.name if any(volume.ephemeral for volume in spec.volumes) else ""
    left_out = _OF_REPLICAS - looked_at
    if not left_out.isdisjoint(meta.labels):
        left_out -= frozenset(_own_keys(info))
    labels = sorted(item for item in meta.labels.items() if item[0] not in left_out)
    rules = msgspec.json.encode((replace(spec, hostname="", node_name=""), labels))
    return meta.namespace, own_claims, spec.priority, info.problem, info.shape, rules


def _own_keys(info: PodInfo) -> Iterator[str]:
    """Yield the label keys in the pod's own selectors: it may be in the set that it names."""
    yield from info.facts.affinities.keys
    for constraint in info.facts.spread:
        yield from (rule.key for rule in constraint.rules or ())


class Grouping:
    """Tells to which group a pod belongs, by the label keys that selectors in the cluster look at.

    Pods of a group are equal but for name and UID, and get the same answer.
    """

    def __init__(self, cluster: NodeCache) -> None:
        self._cluster = cluster
        self._looked_at: frozenset[str] = frozenset()
        self._version = 0

    def key(self, waiting: Waiting) -> Hashable:
        """Return the key of the pod's group; a nominated or denied one is a group alone."""
        if waiting.group is None or waiting.grouping != self._version:
            alone = waiting.nominated or waiting.alone
            waiting.group = waiting.uid if alone else self.key_of(waiting.info)
            waiting.grouping = self._version
        return waiting.group

    def key_of(self, info: PodInfo) -> Hashable:
        return group_key(info, self._looked_at)

    def new_keys(self) -> frozenset[str]:
        """Return the labels of replicas that are looked at, and were not when keys were last renewed."""
        return (self._cluster.label_keys() & _OF_REPLICAS) - self._looked_at

    def renew(self, keys: frozenset[str]) -> None:
        """Let these labels tell pods apart from now on."""
        self._looked_at |= keys
        self._version += 1


class WaitingHeap:
    """Pods in one place by a key. Entries of pods that left are void, and dropped sooner or later."""

    def __init__(self) -> None:
        self._heap: list[tuple[Any, int, Waiting]] = []
        self._limit = _SPARE

    def push(self, key: object, waiting: Waiting) -> None:
        if len(self._heap) >= self._limit:
            self._heap = [entry for entry in self._heap if entry[1] == entry[2].number]
            heapq.heapify(self._heap)
            self._limit = 2 * len(self._heap) + _SPARE
        heapq.heappush(self._heap, (key, waiting.number, waiting))

    def head(self) -> tuple[Any, Waiting] | None:
        """Return the least key and its pod; None if there is no pod."""
        heap = self._heap
        while heap:
            key, number, waiting = heap[0]
            if waiting.number == number:
                return key, waiting
            heapq.heappop(heap)
        return None

    def drop(self) -> None:
        """Remove the head."""
        heapq.heappop(self._heap)


@total_ordering
class _Last:
    """Comes after everything."""

    def __lt__(self, other: object) -> bool:
        return False

    def __eq__(self, other: object) -> bool:
        return other is self

    def __hash__(self) -> int:
        return 0


LAST: Final = _Last()


class SortKeys:
    """Keys by a plugin. A pod for which it fails comes last, by priority and age."""

    def __init__(self, plugin: QueueSortPlugin, faults: PluginFaults) -> None:
        self._plugin, self._faults = plugin, faults
        self._trusted = is_ours(plugin)
        self._example: SortKey | None = None

    def of(self, info: PodInfo) -> SortKey:
        if self._trusted:
            return self._plugin.sort_key(info)
        try:
            key = self._plugin.sort_key(info)
            self._check(key)
        except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
            self._faults.add(self._plugin.name, "sort_key", error)
            return LAST, -info.pod.spec.priority, info.pod.metadata.creation_timestamp
        return key

    def _check(self, key: SortKey) -> None:
        """Raise TypeError for a key that cannot be compared with the first one."""
        example = key if self._example is None else self._example
        try:
            _compare(key, example)
        except Exception as error:
            raise TypeError(f"sort keys {key!r:.100} and {example!r:.100} cannot be compared") from error
        self._example = example


def _compare(key: Any, other: Any) -> None:
    """Compare each element, also those that a comparison of tuples does not come to."""
    if isinstance(key, tuple) and isinstance(other, tuple):
        for left, right in zip(key, other, strict=False):
            _compare(left, right)
    bool(key < other), bool(other < key), bool(key == other)


@dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds: `initial` after the first attempt, doubled by each further one up to `maximum` (0: never)."""

    initial: float = 1.0
    maximum: float = 10.0

    def seconds(self, attempts: int) -> float:
        """Return how long to wait after that many attempts, by default 1, 2, 4, 8, then 10."""
        return min(self.maximum, self.initial * 2.0 ** min(attempts - 1, 60)) if attempts else 0.0


class BackoffQueue:
    """Pods whose back-off is not over, by its end; pods with errors apart."""

    def __init__(self) -> None:
        self._unschedulable = WaitingHeap()
        self._errors = WaitingHeap()
        self._heaps = self._unschedulable, self._errors

    def push(self, waiting: Waiting, key: SortKey) -> None:
        heap = self._errors if waiting.errors else self._unschedulable
        heap.push((waiting.ready_at, key), waiting)

    def over(self, now: float) -> Waiting | None:
        """Return a pod whose back-off is over."""
        for heap in self._heaps:
            if (head := heap.head()) and head[1].ready_at <= now:
                return head[1]
        return None

    def early(self) -> Waiting | None:
        """Return the pod that may be tried now if no other is ready."""
        head = self._unschedulable.head()
        return head[1] if head else None

    def next_time(self) -> float | None:
        """Return when the next back-off is over."""
        heads = (heap.head() for heap in self._heaps)
        return min((head[1].ready_at for head in heads if head), default=None)


QUEUES: Final = {
    QueuePlace.GATED: "gated",
    QueuePlace.READY: "active",
    QueuePlace.BACKING_OFF: "backoff",
    QueuePlace.PARKED: "unschedulable",
}
"""Names in `scheduler_pending_pods`."""
ENTERED: Final = QUEUES | {QueuePlace.GATED: "unschedulable"}
"""Names where pods that enter are counted: gated ones are among the unschedulable there."""
POD_ADDED: Final = "UnschedulablePodAdd"
POD_UPDATED: Final = "UnschedulablePodUpdate"
ATTEMPT_FAILED: Final = "ScheduleAttemptFailure"
BACKOFF_OVER: Final = "BackoffComplete"
POPPED_EARLY: Final = "PopFromBackoffQ"
ACTIVATED: Final = "ForceActivate"
"""Also for a pod whose equal was placed, or has left: the next one is tried."""
TOO_LONG: Final = "UnschedulableTimeout"
_LABELS: Final = {
    ChangeKind.NODE_ADDED: "NodeAdd",
    ChangeKind.NODE_REMOVED: "NodeDelete",
    ChangeKind.NODE_ALLOCATABLE: "NodeUpdateNodeAllocatable",
    ChangeKind.NODE_LABELS: "NodeUpdateNodeLabel",
    ChangeKind.NODE_TAINTS: "NodeUpdateNodeTaint",
    ChangeKind.POD_ADDED: "AssignedPodAdd",
    ChangeKind.POD_REMOVED: "AssignedPodDelete",
    ChangeKind.POD_CHANGED: "AssignedPodUpdate",
    ChangeKind.POD_ITSELF: POD_UPDATED,
    ChangeKind.WATCHED: "UnschedulableTimeout",
}
_RESOURCES: Final = {
    ChangeKind.TOPOLOGY: "noderesourcetopologies.v1alpha2.topology.node.k8s.io",
    ChangeKind.CLAIM: "PersistentVolumeClaim",
    ChangeKind.VOLUME: "PersistentVolume",
    ChangeKind.STORAGE_CLASS: "storage.k8s.io/StorageClass",
    ChangeKind.NAMESPACE: "Namespace",
    ChangeKind.SERVICE: "Service",
    ChangeKind.CSI_NODE: "storage.k8s.io/CSINode",
    ChangeKind.CSI_DRIVER: "storage.k8s.io/CSIDriver",
    ChangeKind.STORAGE_CAPACITY: "storage.k8s.io/CSIStorageCapacity",
    ChangeKind.VOLUME_ATTACHMENT: "storage.k8s.io/VolumeAttachment",
}
"""Kinds that are additions, updates or deletions by the object. Upstream has no event for namespaces and
services."""


def event_of(change: ClusterChange) -> str:
    """Return why pods enter a queue after a change; of several kinds, by the first one.

    In the words of kube-scheduler's `scheduler_queue_incoming_pods_total`; upstream:
    `pkg/scheduler/framework/events.go`, and `ClusterEvent.Label` of k8s.io/kube-scheduler (1.36).
    """
    kind = next(iter(members(change.kind)), ChangeKind.POD_ITSELF)
    if label := _LABELS.get(kind):
        return label
    action = "Add" if change.old is None else "Delete" if change.new is None else "Update"
    return f"{_RESOURCES[kind]}{action}"


FAILING_SECONDS: Final = 0.25
"""Attempts that fail for so long in a row let the newest pods come forward."""
_DOUBTFUL_TURN: Final = 8
"""Every so many attempts one is of a doubtful pod."""


class Line(IntEnum):
    """Why a pod is ready."""

    NEW = 0
    HINTED = 1
    FLUSHED = 2
    DOUBTFUL = 3


_LINES: Final = (Line.NEW, Line.HINTED, Line.FLUSHED)


class ActiveQueue:
    """Ready pods by line and sort key."""

    def __init__(self) -> None:
        self._lines = {line: WaitingHeap() for line in Line}
        self._heaps = tuple(self._lines.values())
        self._newest = WaitingHeap()
        self._failed: Line | None = None
        self._failing_since: float | None = None
        self._attempts = 0
        self.popped = Line.NEW
        """The line of the pod that is being tried."""

    @property
    def failing(self) -> bool:
        """Whether the last attempt failed."""
        return self._failing_since is not None

    def push(self, waiting: Waiting, line: Line, key: SortKey) -> None:
        self._lines[line].push(key, waiting)
        if line is Line.NEW:
            self._newest.push((key[0], -waiting.number), waiting)

    def next(self, now: float) -> tuple[Line, Waiting] | None:
        """Return the pod to be tried next, and its line."""
        new, hinted, flushed, doubtful = [heap.head() for heap in self._heaps]
        if new and not (hinted or flushed or doubtful or self.failing):
            return Line.NEW, new[1]
        heads = {
            line: head for line, head in zip(_LINES, (new, hinted, flushed), strict=True) if head is not None
        }
        level = min((key[0] for key, _ in heads.values()), default=None)
        if doubtful and (level is None or (self._attempts % _DOUBTFUL_TURN == 0 and doubtful[0][0] <= level)):
            return Line.DOUBTFUL, doubtful[1]
        if level is None:
            return None
        able = [line for line in heads if heads[line][0][0] == level]
        last = self._failed
        if last is None:
            line = min(able, key=lambda line: heads[line][0])
        else:
            line = min(able, key=lambda line: (line - last - 1) % len(_LINES))
        in_vain = 0.0 if self._failing_since is None else now - self._failing_since
        if line is Line.NEW and in_vain >= FAILING_SECONDS and self._attempts % 2:
            newest = self._newest.head()
            assert newest is not None
            return line, newest[1]
        return line, heads[line][1]

    def ended(self, now: float, *, failed: bool) -> None:
        """Note the outcome of the attempt; with no pod left that waits, no turn is kept."""
        self._attempts += 1
        if not failed:
            self._failed = self._failing_since = None
            return
        waiting = any(line.head() for line in self._lines.values())
        self._failed = self.popped if waiting and self.popped in _LINES else None
        if not waiting:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now

    def put_off(self) -> None:
        """Let other pods come before the one that is being tried, though its attempt has not ended."""
        self._attempts += 1


class Screen:
    """Whether a pod certainly fits nowhere, for a microsecond; for the order of attempts only.

    Holds the most of each resource on one node, until a node or pod changes.
    """

    def __init__(self, cluster: NodeCache) -> None:
        self._cluster = cluster
        self._version: tuple[int, int] | None = None
        self._free: Mapping[str, int] = {}
        self._allocatable: Mapping[str, int] = {}
        self._amplified = False

    def fits_nowhere(self, pod: PodInfo) -> bool:
        """Return True only if no node can run the pod now, nor by preemption."""
        columns = self._cluster.columns
        version = columns.nodes_log.position, columns.pods_log.position
        if version != self._version:
            self._version = version
            self._measure()
        selector = pod.pod.spec.node_selector.items()
        if any(columns.topology.value(key, value) == UNUSED for key, value in selector):
            return True
        most = self._allocatable if self._may_preempt(pod) else self._free
        return any(
            amount > most.get(name, 0)
            for name, amount in pod.requests.items()
            if amount > 0 and not (self._amplified and name == "cpu")
        )

    def _may_preempt(self, pod: PodInfo) -> bool:
        spec, lowest = pod.pod.spec, self._cluster.priorities.lowest()
        return spec.preemption_policy != "Never" and lowest is not None and lowest < spec.priority

    def _measure(self) -> None:
        columns, rows = self._cluster.columns, self._cluster.columns.live_rows()
        names = columns.resources()
        if not len(rows):
            self._free = self._allocatable = {}
            return
        allocatable = columns.allocatable[rows]
        free = (allocatable - columns.requested[rows]).max(axis=0)
        self._allocatable = {
            name: int(most) for name, most in zip(names, allocatable.max(axis=0), strict=False)
        }
        self._free = {name: int(most) for name, most in zip(names, free, strict=False)}
        self._amplified = bool(columns.amplified[rows].any())
