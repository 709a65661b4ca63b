"""Groups of pods that get the same answer: equal but for name and UID, of one priority.

What one attempt found out for a pod holds for its group as long as nothing changes that can help it. So a
group waits as one: a change is looked at once per group, and one pod at a time is tried.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, Hint
from corelane.scheduler.queue.waiting import SortKey, Verdict, Waiting, WaitingHeap

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
    """Tells to which group a pod belongs, by the label keys that selectors in the cluster look at."""

    def __init__(self, looked_at: Callable[[], frozenset[str]]) -> None:
        self._ask = looked_at
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
        return (self._ask() & _OF_REPLICAS) - self._looked_at

    def renew(self, keys: frozenset[str]) -> None:
        """Let these labels tell pods apart from now on."""
        self._looked_at |= keys
        self._version += 1


@dataclass(slots=True, eq=False)
class Group:
    """Parked pods that are equal, and why they are parked."""

    key: Hashable
    verdict: Verdict
    kinds: ChangeKind = ChangeKind.NOTHING
    """Kinds of change that can help."""
    hints: tuple[tuple[ChangeKind, Hint], ...] = ()
    cpu: int = 0
    """MilliCPU that each of the pods requests."""
    local: bool = False
    """Rejected only by plugins that look at one node at a time, one of which hears when it grows: a change of
    a node helps there alone, and not while it is smaller than the pod."""
    count: int = 0
    """Number of parked pods."""
    trials: set[str] = field(default_factory=set)
    """UIDs of pods of the group that are ready or backing off to find out whether a change helped."""
    hopeful: bool = False
    """A hint says that the change looked at may help."""
    flush_at: float = 0.0
    """When a pod of it is tried although nothing changed, in seconds."""
    _rested: WaitingHeap = field(default_factory=WaitingHeap)
    """Pods whose back-off is over, in the order of the queue."""
    _resting: WaitingHeap = field(default_factory=WaitingHeap)
    """Others, by the end of their back-off."""

    def park(self, waiting: Waiting, now: float, key: SortKey) -> None:
        self.count += 1
        if waiting.ready_at <= now:
            self._rested.push(key, waiting)
        else:
            self._resting.push((waiting.ready_at, key), waiting)

    def first(self, now: float) -> Waiting | None:
        """Return the pod to be tried first: the first that is not backing off, else the next to be over."""
        while (head := self._resting.head()) and head[1].ready_at <= now:
            self._rested.push(head[0][1], head[1])
            self._resting.drop()
        found = self._rested.head() or self._resting.head()
        return found[1] if found else None

    def example(self) -> PodInfo | None:
        """Return one of the pods."""
        found = self._rested.head() or self._resting.head()
        return found[1].info if found else None
