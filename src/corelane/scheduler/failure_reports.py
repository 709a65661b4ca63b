"""What is written about a pod that was not placed: its condition, and events at a limited rate."""

from collections.abc import Callable, Iterator
from heapq import nsmallest
from typing import Final

from corelane.kube.meta import condition
from corelane.kube.pod import Pod
from corelane.scheduler.attempts import Attempt
from corelane.scheduler.cache.nodes import NodeCache, NodeInfo
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.states import Fact
from corelane.scheduler.explain import live
from corelane.scheduler.framework.filtering import first_rejection
from corelane.scheduler.framework.plugin import Cycle
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.instructions import Instruction, NearestNode, RecordPodEvent, SetCondition
from corelane.scheduler.plugins.cpus import NAME as CPU_PLACEMENT
from corelane.scheduler.plugins.cpus import admissions
from corelane.scheduler.queue import Waiting
from corelane.scheduler.raising import raised_by

SAME_EVENT_SECONDS: Final = 300.0
NEW_EVENT_SECONDS: Final = 10.0
"""Least time between two events about a pod, with the same message and with another one."""
_ASKED: Final = 16
"""Nodes without enough CPUs that are asked whether anything else is missing there."""
_HELP_SECONDS: Final = 0.2
"""Least time between two events that say what would help."""


def unknown_cpus(before: PodInfo | None, info: PodInfo) -> Iterator[RecordPodEvent]:
    """Yield an event about a bound pod whose CPUs cannot be read, unless its former version had the same."""
    if (why := info.unreadable) and (before is None or before.unreadable != why):
        yield RecordPodEvent(info.pod, "Warning", "CPUsUnknown", f"CPUs of the pod cannot be read: {why}")


class FailureReports:
    """Says why pods are pending."""

    def __init__(self, cluster: NodeCache, profile_of: Callable[[Pod], Profile]) -> None:
        self._cluster = cluster
        self._profile_of = profile_of
        self._help_at = float("-inf")

    def explain(
        self,
        waiting: Waiting,
        now: float,
        reason: str,
        why: str,
        attempt: Attempt | None = None,
        *,
        claimed: bool = False,
    ) -> Iterator[Instruction]:
        """The condition always carries the last result; events are limited in their rate.

        Of a pod that was `claimed`, the node of the claim may be written as its nominated node meanwhile.
        """
        pod, waiting.reason = waiting.info.pod, why
        nominated = self._cluster.nominations.of(waiting.uid)
        known = _has_condition(pod, reason, why) and pod.status.nominated_node_name == nominated
        if claimed or not known:
            yield SetCondition(pod, reason, why, nominated)
        since = now - waiting.event_at
        if since >= (NEW_EVENT_SECONDS if why != waiting.event else SAME_EVENT_SECONDS):
            waiting.event, waiting.event_at = why, now
            # What another node lacks is no remedy while the nominated one is being made free.
            nearest, text = self._remedy(attempt, now, nominated=bool(nominated))
            yield RecordPodEvent(pod, "Warning", "FailedScheduling", why, nearest, text)

    def _remedy(
        self, attempt: Attempt | None, now: float, *, nominated: bool
    ) -> tuple[NearestNode | None, str]:
        """What would help; plugins are asked once more, and one that raises an error now says nothing."""
        if attempt is None:
            return None, ""
        try:
            nearest = None if nominated else _nearest(attempt.cycle)
            return nearest, self._help(attempt, now) if nearest is None else ""
        except Exception as error:
            plugin = raised_by(error, self._profile_of(attempt.cycle.pod.pod))
            if not plugin:
                raise
            self._cluster.faults.add(plugin, "explain", error)
            return None, ""

    def _help(self, attempt: Attempt, now: float) -> str:
        """What would help, for a few events a second: it takes some milliseconds."""
        if now < self._help_at:
            return ""
        self._help_at = now + _HELP_SECONDS
        return live.help_for(self._profile_of(attempt.cycle.pod.pod), self._cluster, attempt)


def _nearest(cycle: Cycle) -> NearestNode | None:
    """Of the nodes that lack CPUs for the pod and nothing else, the one with the most free exclusive CPUs."""
    lacking, request = admissions(cycle).lacking, cycle.pod.request
    if not lacking or request is None:
        return None
    others = tuple(plugin for plugin in cycle.filters if plugin.name != CPU_PLACEMENT)
    for node in nsmallest(_ASKED, lacking.values(), key=_most_free):
        if node.cpu_state and first_rejection(others, cycle, node) is None:
            return NearestNode(node.name, node.cpu_state, request)
    return None


def _most_free(node: NodeInfo) -> tuple[int, str]:
    return -int(node.canonical.facts[Fact.FREE]), node.name


def _has_condition(pod: Pod, reason: str, message: str) -> bool:
    scheduled = condition(pod.status.conditions, "PodScheduled")
    expected = ("False", reason, message)
    return scheduled is not None and (scheduled.status, scheduled.reason, scheduled.message) == expected
