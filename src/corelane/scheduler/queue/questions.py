"""Asks parked groups, one by one, whether a change may help them: many changes and groups may wait."""

from collections.abc import Iterator

from corelane.scheduler.framework.changes import ClusterChange
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.queue import incoming
from corelane.scheduler.queue.groups import Group
from corelane.scheduler.queue.hints import Backlog, PendingChange, helps
from corelane.scheduler.queue.unschedulable import UnschedulablePods


class Questions:
    """Changes that wait, and the one about which groups are being asked."""

    def __init__(self, profile: Profile, groups: UnschedulablePods) -> None:
        self._groups = groups
        self._screened = any(plugin.name == "NodeResourcesFit" for plugin in profile.plugins)
        """Groups that request more CPUs than a node has at all are not asked about it."""
        self._backlog = Backlog()
        self._asking: Iterator[Group] | None = None
        self.event = ""
        """Of the change that groups are asked about; see `incoming`."""

    @property
    def over(self) -> bool:
        """Whether every group was asked about every change."""
        return self._asking is None and not len(self._backlog)

    def add(self, change: ClusterChange, sequence: int) -> bool:
        """Add a change; False if there are too many, and all of them are dropped."""
        return self._backlog.add(change, sequence)

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
            pending = self._backlog.take()
            if pending is None:
                return None
            self._asking, self.event = self._asked(pending), incoming.event_of(pending.change)
        group = next(self._asking, None)
        if group is None:
            self._asking = None
        return group

    def _asked(self, pending: PendingChange) -> Iterator[Group]:
        change, most = pending.change, None
        if self._screened and change.after is not None and not change.after.amplified:
            most = change.after.allocatable.get("cpu", 0)
        for group in list(self._groups.listening(change.kind, most)):
            group.hopeful = False
            if group.count and not group.trials and group.verdict.sequence < pending.sequence:
                example = group.example()
                group.hopeful = example is not None and helps(group.hints, example, change)
            yield group
