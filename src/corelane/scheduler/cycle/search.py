"""The search for a node in one attempt, or in its next portion: filters and scores, then PostFilter."""

from typing import Final, TypeAlias

from corelane.scheduler.cluster.nodes import SUCCESS, UNSCHEDULABLE, NodeCache
from corelane.scheduler.cluster.pods import PodInfo
from corelane.scheduler.cycle import finalists
from corelane.scheduler.framework.attempts import Attempt, Rejections
from corelane.scheduler.framework.plugin import Nomination, NotNominated
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.queue.waiting import Waiting

# Attempts that found no node, kept while preemption goes on in portions: the next one would find the same.
#
# To find out again why each of 5,000 nodes rejects a pod takes 10 to 20 ms, as much as a portion itself.


MOST_KEPT: Final = 8
"""Attempts kept; one takes up to 1 MB where 5,000 nodes reject a pod for different reasons."""

MANY_REASONS: Final = 1024
"""Of more different reasons, what follows is for the next portion: finding these took 15 ms already."""

_Positions: TypeAlias = tuple[int, int]


class KeptAttempts:
    """By pod; an attempt holds until a row changes, a node is nominated, or `clear`, due at every event."""

    def __init__(self, cluster: NodeCache) -> None:
        self._cluster = cluster
        self._kept: dict[str, tuple[PodInfo, _Positions, Attempt]] = {}
        self._popped: Attempt | None = None
        """The attempt that was used again last; None where it was a new one."""

    def clear(self) -> None:
        """Forget all: an event may have changed anything."""
        if self._kept:
            self._kept.clear()

    def is_worth_a_portion(self, attempt: Attempt) -> bool:
        """Return whether it took long to find out why the nodes reject the pod, and that can be kept."""
        rejections = attempt.rejections
        many = isinstance(rejections, Rejections) and len(rejections.groups) > MANY_REASONS
        return many and attempt is not self._popped and self._can_keep(attempt)

    def _can_keep(self, attempt: Attempt) -> bool:
        """Whether it is an attempt on all nodes, while none is nominated for a pod."""
        return not self._cluster.nominations and attempt.cycle.only is None

    def keep(self, info: PodInfo, attempt: Attempt) -> None:
        """Keep an attempt, if it may be kept at all."""
        if not self._can_keep(attempt):
            return
        while len(self._kept) >= MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        self._kept[info.uid] = info, self._positions(), attempt

    def pop(self, info: PodInfo) -> Attempt | None:
        """Return the attempt of a pod, if the next one would find the same; it is kept no longer."""
        self._popped = None
        if info.uid not in self._kept:
            return None
        of, positions, attempt = self._kept.pop(info.uid)
        holds = of is info and positions == self._positions() and not self._cluster.nominations
        self._popped = attempt if holds else None
        return self._popped

    def _positions(self) -> _Positions:
        columns = self._cluster.columns
        return columns.nodes_log.position, columns.pods_log.position


JUDGED_AT_ONCE: Final = 512
"""Canonical states that one attempt judges for a shape, about 8 ms where nodes publish zones only."""


class Attempts:
    """Attempts to place pods, in portions; nothing is claimed. Raises what a plugin raises."""

    def __init__(self, cluster: NodeCache) -> None:
        self._cluster, self.kept = cluster, KeptAttempts(cluster)

    def attempt(self, waiting: Waiting, profile: Profile) -> tuple[Attempt, Nomination | NotNominated | None]:
        """Return the attempt, and of one that found no node what the PostFilter plugins say."""
        attempt, result = self._tried(waiting, profile), None
        if attempt.node is None and not attempt.unfinished and self._cluster.count():
            result = self._post_filtered(waiting, profile, attempt)
            if isinstance(result, NotNominated) and result.unfinished:
                self.kept.keep(waiting.info, attempt)
                attempt = Attempt(attempt.cycle, unfinished=True)
        return attempt, result

    def _tried(self, waiting: Waiting, profile: Profile) -> Attempt:
        """An attempt on the nominated node, and where that fails, on all nodes."""
        info = waiting.info
        if kept := self.kept.pop(info):
            return kept
        if nominated := self._cluster.nominations.of(waiting.uid):
            attempt = finalists.attempt(profile, self._cluster, info, frozenset({nominated}), JUDGED_AT_ONCE)
            if attempt.node is not None or attempt.unfinished:
                return attempt
        return finalists.attempt(profile, self._cluster, info, most_judged=JUDGED_AT_ONCE)

    def _post_filtered(
        self, waiting: Waiting, profile: Profile, attempt: Attempt
    ) -> Nomination | NotNominated:
        """What the PostFilter plugins say; in a portion of its own after a search for many reasons."""
        waiting.rejected = not waiting.rejected and self.kept.is_worth_a_portion(attempt)
        if waiting.rejected:
            return NotNominated("", keep=True, unfinished=True)
        points = self._cluster.points
        points.begin("PostFilter")
        result = _post_filter(profile, attempt)
        points.end(SUCCESS if isinstance(result, Nomination) else UNSCHEDULABLE)
        return result


def _post_filter(profile: Profile, attempt: Attempt) -> Nomination | NotNominated:
    """Ask the PostFilter plugins until one nominates a node; messages of the others are joined."""
    messages, keep, plugins = [], False, frozenset[str]()
    for plugin in profile.post_filters:
        result = plugin.post_filter(attempt.cycle, attempt.rejections)
        if isinstance(result, Nomination) or result.unfinished:
            return result
        messages.append(result.message)
        keep |= result.keep
        plugins |= result.plugins
    return NotNominated(" ".join(messages), keep=keep, plugins=plugins)
