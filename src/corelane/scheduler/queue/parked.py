"""Parked pods by group, and the changes of the cluster that groups have yet to be asked about.

What one attempt found out for a pod holds for its group, the pods that are equal but for name and UID, as
long as nothing changes that can help it. So a group waits as one: a change is looked at once by each group
that listens to its kind, and one pod at a time is tried. Few groups are asked at once; a storm, 5,000 nodes
that change under 10,000 groups, is worked off between attempts, some thousand questions at a time. Changes of
one node that wait together are asked as one. With too many waiting, every group is tried.
"""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import reduce
from itertools import product
from operator import itemgetter, or_
from typing import Final

from msgspec.structs import replace

from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, ClusterChange, Hint, always, members
from corelane.scheduler.framework.plugin import Scope
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.queue.waiting import SortKey, Verdict, Waiting, WaitingHeap, event_of


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
    number: int = 0
    """Sorts groups that request as much CPU."""
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
        head = self._rested.head() or self._resting.head()
        return head[1] if head else None

    def example(self) -> PodInfo | None:
        """Return one of the pods."""
        head = self._rested.head() or self._resting.head()
        return head[1].info if head else None


_EITHER: Final = (True, False)
_CPU: Final = itemgetter(0)
_ORDER: Final = itemgetter(0, 1)
_HEAR_GROWTH: Final = frozenset({"NodeResourcesFit", "CPUPlacement"})
"""Plugins with a hint about nodes that become large enough."""
LONGEST_PARKED: Final = 300.0
"""Seconds after which one pod of a group is tried although nothing changed; kube-scheduler's number."""


class UnschedulablePods:
    """Groups with parked pods. Those that listen to a kind are in order of the CPU that a pod requests."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._local = frozenset(plugin.name for plugin in profile.filters if plugin.scope is Scope.ROW)
        self.groups: dict[Hashable, Group] = {}
        self._listening: dict[tuple[ChangeKind, bool], list[tuple[int, int, Group]]] = {}
        """Also by whether the groups are local."""
        self._flushes: list[tuple[float, int, Hashable]] = []
        self._count = 0

    def listens(self, kinds: ChangeKind) -> bool:
        """Return whether some group listens to one of the kinds."""
        return any(self._listening.get((kind, local)) for kind in members(kinds) for local in _EITHER)

    def listening(self, kinds: ChangeKind, most_cpu: int | None) -> Iterator[Group]:
        """Yield the groups that listen to one of the kinds; local ones if that much CPU is enough."""
        seen: set[Hashable] = set()
        for kind, local in product(members(kinds), _EITHER):
            groups = self._listening.get((kind, local), [])
            end = len(groups)
            if local and most_cpu is not None:
                end = bisect_right(groups, most_cpu, key=_CPU)
            for _, _, group in groups[:end]:
                if group.key not in seen:
                    seen.add(group.key)
                    yield group

    def put(self, group: Group, now: float) -> None:
        """Add a group, or one whose verdict has changed."""
        self.drop(group.key)
        self._count += 1
        self.groups[group.key] = group
        group.number = self._count
        for kind in members(group.kinds):
            groups = self._listening.setdefault((kind, group.local), [])
            insort(groups, (group.cpu, self._count, group), key=_ORDER)
        self.confirmed(group, now)

    def judged(self, key: Hashable, info: PodInfo, verdict: Verdict, now: float) -> Group:
        """Return the group of a pod, with the verdict about it."""
        group = self.groups.get(key)
        if group is not None and group.verdict is verdict:
            return group
        if group is not None and group.verdict.plugins == verdict.plugins:
            group.verdict = verdict
            self.confirmed(group, now)
            return group
        if group is None:
            group = Group(key, verdict, cpu=info.requests.get("cpu", 0))
        self.drop(key)
        group.verdict = verdict
        group.hints = tuple(self._hints(info, verdict.plugins))
        group.local = bool(verdict.plugins & _HEAR_GROWTH) and verdict.plugins <= self._local
        group.kinds = reduce(or_, (kinds for kinds, _ in group.hints), ChangeKind.NOTHING)
        self.put(group, now)
        return group

    def _hints(self, info: PodInfo, plugins: frozenset[str]) -> Iterator[tuple[ChangeKind, Hint]]:
        if not plugins:
            yield ~ChangeKind.NOTHING, always
        for name in sorted(plugins):
            yield from self._profile.of(info).hints(name).items()

    def drop(self, key: Hashable) -> None:
        """Remove a group, if it is there."""
        group = self.groups.pop(key, None)
        if group is None:
            return
        for kind in members(group.kinds):
            groups = self._listening[kind, group.local]
            del groups[bisect_left(groups, (group.cpu, group.number), key=_ORDER)]

    def drop_empty(self, group: Group) -> None:
        """Remove a group without parked pods."""
        if not group.count and self.groups.get(group.key) is group:
            self.drop(group.key)

    def confirmed(self, group: Group, now: float) -> None:
        """Note that no node fits the group at this time."""
        group.flush_at = now + LONGEST_PARKED
        self._count += 1
        heapq.heappush(self._flushes, (group.flush_at, self._count, group.key))

    def overdue(self, now: float) -> Group | None:
        """Return a group that was not tried for too long."""
        group = self._next_flush()
        return group if group is not None and group.flush_at <= now else None

    def next_time(self) -> float | None:
        """Return when the next group is overdue."""
        group = self._next_flush()
        return group.flush_at if group is not None else None

    def _next_flush(self) -> Group | None:
        while self._flushes:
            at, _, key = self._flushes[0]
            group = self.groups.get(key)
            if group is not None and group.flush_at == at:
                return group
            heapq.heappop(self._flushes)
        return None


MOST_WAITING: Final = 20_000
_MERGED: Final = ChangeKind.NODE | ChangeKind.TOPOLOGY
"""Kinds for which only the node counts."""


@dataclass(slots=True, eq=False)
class _PendingChange:
    """A change, and its number in the order of all changes."""

    change: ClusterChange
    sequence: int


def helps(hints: Iterable[tuple[ChangeKind, Hint]], pod: PodInfo, change: ClusterChange) -> bool:
    """Return whether a hint says that the change may help; one that fails says so, as upstream."""
    return any(kinds & change.kind and _says_so(hint, pod, change) for kinds, hint in hints)


def _says_so(hint: Hint, pod: PodInfo, change: ClusterChange) -> bool:
    try:
        return bool(hint(pod, change))
    except Exception:  # noqa: BLE001 - a third party's hint may raise anything, and must not lose a pod
        return True


class Questions:
    """Changes that wait, in their order, and the one about which groups are being asked."""

    def __init__(self, profile: Profile, groups: UnschedulablePods) -> None:
        self._groups = groups
        self._screened = any(plugin.name == "NodeResourcesFit" for plugin in profile.plugins)
        """Groups that request more CPUs than a node has at all are not asked about it."""
        self._pending: deque[_PendingChange] = deque()
        self._of_node: dict[str, _PendingChange] = {}
        self._asking: Iterator[Group] | None = None
        self.event = ""
        """Of the change that groups are asked about; see `event_of`."""
        self.over = True
        """Whether every group was asked about every change."""

    def add(self, change: ClusterChange, sequence: int) -> bool:
        """Add a change; False if there are too many, and all of them are dropped."""
        of_node = change.kind in _MERGED and bool(change.node)
        waiting = self._of_node.get(change.node) if of_node else None
        added = waiting is not None or len(self._pending) < MOST_WAITING
        if waiting is not None:
            kinds = waiting.change.kind | change.kind
            # What happened in between is not known: nothing may be concluded from the state before.
            waiting.change = replace(change, kind=kinds, old=None, before=None, merged=True)
            waiting.sequence = sequence
        elif added:
            self._pending.append(_PendingChange(change, sequence))
            if of_node:
                self._of_node[change.node] = self._pending[-1]
        else:
            self._pending.clear()
            self._of_node.clear()
        self.over = not added and self._asking is None
        return added

    def hopeful(self, most: int) -> Iterator[Group]:
        """Ask at most so many groups, and yield those that the change may help."""
        for _ in range(most):
            group = self._next()
            if group is not None and group.hopeful:
                yield group
            elif group is None and self.over:
                return

    def _next(self) -> Group | None:
        """Ask one group, and return it: `hopeful` if the change may help; None at the end of a change."""
        if self._asking is None:
            if not self._pending:
                return None
            pending = self._pending.popleft()
            if self._of_node.get(pending.change.node) is pending:
                del self._of_node[pending.change.node]
            self._asking, self.event = self._asked(pending), event_of(pending.change)
        group = next(self._asking, None)
        if group is None:
            self._asking, self.over = None, not self._pending
        return group

    def _asked(self, pending: _PendingChange) -> Iterator[Group]:
        change, most = pending.change, None
        if self._screened and change.after is not None and not change.after.amplified:
            most = change.after.allocatable.get("cpu", 0)
        for group in list(self._groups.listening(change.kind, most)):
            group.hopeful = False
            if group.count and not group.trials and group.verdict.sequence < pending.sequence:
                example = group.example()
                group.hopeful = example is not None and helps(group.hints, example, change)
            yield group
