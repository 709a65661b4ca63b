"""Parked pods by group, and which groups listen to which kinds of change."""

import heapq
from bisect import bisect_left, bisect_right, insort
from collections.abc import Hashable, Iterator
from functools import reduce
from itertools import product
from operator import or_
from typing import Final

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ChangeKind, Hint, always, members
from corelane.scheduler.framework.plugin import Scope
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.queue.groups import Group
from corelane.scheduler.queue.waiting import Verdict

_EITHER: Final = (True, False)
_HEAR_GROWTH: Final = frozenset({"NodeResourcesFit", "CPUPlacement"})
"""Plugins with a hint about nodes that become large enough."""
LONGEST_PARKED: Final = 300.0
"""Seconds after which one pod of a group is tried although nothing changed; kube-scheduler's number."""


class UnschedulablePods:
    """Groups with parked pods. Those that listen to a kind are in order of the CPU that a pod requests."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._local = frozenset(one.name for one in profile.filters if one.scope is Scope.ROW)
        self.groups: dict[Hashable, Group] = {}
        self._listening: dict[tuple[ChangeKind, bool], list[tuple[int, int, Group]]] = {}
        """Also by whether the groups are local."""
        self._number: dict[Hashable, int] = {}
        self._flushes: list[tuple[float, int, Hashable]] = []
        self._count = 0

    def listens(self, kinds: ChangeKind) -> bool:
        """Return whether some group listens to one of the kinds."""
        return bool(self.groups) and any(
            self._listening.get((kind, local)) for kind in members(kinds) for local in _EITHER
        )

    def listening(self, kinds: ChangeKind, most_cpu: int | None) -> Iterator[Group]:
        """Yield the groups that listen to one of the kinds; local ones if that much CPU is enough."""
        seen: set[Hashable] = set()
        for kind, local in product(members(kinds), _EITHER):
            groups = self._listening.get((kind, local), [])
            end = len(groups)
            if local and most_cpu is not None:
                end = bisect_right(groups, most_cpu, key=_cpu)
            for _, _, group in groups[:end]:
                if group.key not in seen:
                    seen.add(group.key)
                    yield group

    def put(self, group: Group, now: float) -> None:
        """Add a group, or one whose verdict has changed."""
        self.drop(group.key)
        self._count += 1
        self.groups[group.key] = group
        self._number[group.key] = self._count
        for kind in members(group.kinds):
            groups = self._listening.setdefault((kind, group.local), [])
            insort(groups, (group.cpu, self._count, group), key=_order)
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
        number = self._number.pop(key)
        for kind in members(group.kinds):
            groups = self._listening[kind, group.local]
            del groups[bisect_left(groups, (group.cpu, number), key=_order)]

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


def _cpu(entry: tuple[int, int, Group]) -> int:
    return entry[0]


def _order(entry: tuple[int, int, Group]) -> tuple[int, int]:
    return entry[:2]
