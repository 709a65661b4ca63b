"""The scheduler's log: what an operator must see, and each pod at level debug."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from corelane import structured_log
from corelane.cpuset import CPUSet
from corelane.kube.apierrors import APIError
from corelane.kube.decode import Malformed
from corelane.kube.meta import Object
from corelane.kube.objects import NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.reasons.scheduling import DEFINE_TOPOLOGIES
from corelane.scheduler.daemon.metrics import SchedulerMetrics
from corelane.scheduler.queue.waiting import Waiting

_REPEAT_SECONDS: Final = 10.0
_MOST_KEYS: Final = 1000


class LoggingReporter(SchedulerMetrics):
    """Metrics and log in one."""

    def __init__(self, identity: str, lease: str = "", clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(lease, clock)
        self._now = clock
        self._log = structured_log.get_logger("corelane.scheduler").bind(identity=identity)
        self._last: dict[tuple[str, str], tuple[float, int]] = {}
        """By kind of line: when it was last written, and how many were left out since."""
        self._absent: set[str] = set()

    def _limited(self, line: str, key: str, **values: Any) -> None:
        """Write a warning, of each kind at most one in 10 s: an outage fails thousands of requests."""
        now = self._now()
        last, left_out = self._last.get((line, key), (float("-inf"), 0))
        if now - last < _REPEAT_SECONDS:
            self._last[line, key] = last, left_out + 1
            return
        if len(self._last) >= _MOST_KEYS:
            self._last.clear()
        self._last[line, key] = now, 0
        more = {"left_out": left_out} if left_out else {}
        self._log.warning(line, **values, **more)

    def started(self, name: str) -> None:
        self._log.info("scheduling started", scheduler_name=name)

    def waiting(self, holder: str) -> None:
        if self._last.get(("holder", holder)) is None:
            self._last["holder", holder] = self._now(), 0
            self._log.info("standing by: another replica holds the lease", holder=holder)

    def leading(self, *, leads: bool) -> None:
        super().leading(leads=leads)
        self._last.clear()
        self._log.info("lease acquired" if leads else "lease lost or released")

    def lease_failed(self, error: Exception) -> None:
        self._limited("lease cannot be read or written", type(error).__name__, error=_text(error))

    def binding(self, pod: Pod, node: str, assignments: Mapping[str, CPUSet]) -> None:
        self._log.debug("binding", pod=pod.title, node=node)

    def bound(self, pod: Pod, node: str, seconds: float) -> None:
        super().bound(pod, node, seconds)
        self._log.debug("bound", pod=pod.title, node=node, seconds=round(seconds, 4))

    def bind_failed(self, pod: Pod, node: str, error: APIError) -> None:
        super().bind_failed(pod, node, error)
        self._limited("binding not confirmed", f"{error.code}", pod=pod.title, node=node, error=_text(error))

    def bind_dropped(self, pod: Pod, node: str, why: str) -> None:
        self._log.info("binding not sent", pod=pod.title, node=node, why=why)

    def looked_up(self, pod: Pod, node: str) -> None:
        self._log.info("uncertain binding looked up", pod=pod.title, node=node or "none")

    def look_up_failed(self, pod: Pod, error: APIError) -> None:
        self._limited("uncertain binding cannot be looked up", "", pod=pod.title, error=_text(error))

    def plugin_failed(self, plugin: str, what: str, error: Exception) -> None:
        self._log.error("plugin failed", plugin=plugin, extension_point=what, error=_text(error))

    def attempt_failed(self, now: float, waiting: Waiting, plugin: str, error: Exception) -> None:
        super().attempt_failed(now, waiting, plugin, error)
        self._limited(
            "attempt failed: a plugin raised an error",
            f"{plugin}: {type(error).__name__}",
            pod=waiting.info.pod.title,
            plugin=plugin,
            exc_info=error,
        )

    def unschedulable(self, pod: Pod, reason: str, message: str) -> None:
        self._log.debug("pod not scheduled", pod=pod.title, reason=reason, message=message)

    def core_failed(self, what: str, error: Exception) -> None:
        self._log.error("object ignored: it raised an error, report this", what=what, exc_info=error)

    def unusable_topology(self, node: str, problem: str) -> None:
        super().unusable_topology(node, problem)
        self._limited(
            "NodeResourceTopology has an invalid value", f"{node}: {problem}", node=node, problem=problem
        )

    def reallocated(self, pod: Pod, proposed: str, allocated: str) -> None:
        super().reallocated(pod, proposed, allocated)
        self._log.warning(
            "node allocated other CPUs than proposed", pod=pod.title, proposed=proposed, allocated=allocated
        )

    def refused(self, pod: Pod, node: str, reason: str, message: str) -> None:
        super().refused(pod, node, reason, message)
        self._log.error(
            "node refused a pod after it was bound", pod=pod.title, node=node, reason=reason, message=message
        )

    def preempted(self, victim: Pod, preemptor: Pod, node: str) -> None:
        super().preempted(victim, preemptor, node)
        self._log.info("pod evicted", victim=victim.title, preemptor=preemptor.title, node=node)

    def evict_failed(self, victim: Pod, error: APIError) -> None:
        super().evict_failed(victim, error)
        self._limited("pod not evicted", f"{error.code}", victim=victim.title, error=_text(error))

    def write_failed(self, what: str, error: APIError) -> None:
        super().write_failed(what, error)
        self._limited("not written", f"{error.code}", what=what, error=_text(error))

    def dropped(self, what: str) -> None:
        super().dropped(what)
        self._limited("not written: too many writes wait", "", what=what)

    def listed(self, kind: type[Object], objects: int) -> None:
        super().listed(kind, objects)
        self._log.info("listed", kind=kind.api.plural, objects=objects)

    def not_served(self, kind: type[Object]) -> None:
        if kind.api.group not in self._absent:
            self._absent.add(kind.api.group)
            remedy = {"define_with": DEFINE_TOPOLOGIES} if kind is NodeResourceTopology else {}
            served = f"{kind.api.plural}.{kind.api.group}"
            self._log.info("kind is not served: no objects of it", kind=served, **remedy)

    def malformed(self, bad: Malformed) -> None:
        super().malformed(bad)
        self._limited("object cannot be decoded", f"{bad.kind} {bad.key}", object=str(bad))

    def retrying(self, kind: type[Object], error: APIError, seconds: float) -> None:
        super().retrying(kind, error, seconds)
        self._limited(
            "list or watch failed", kind.api.plural, kind=kind.api.plural, error=_text(error),
            retry_seconds=round(seconds, 2),
        )  # fmt: skip

    def recovered(self, kind: type[Object]) -> None:
        self._log.info("watch continues", kind=kind.api.plural)


def _text(error: Exception) -> str:
    return str(error) or type(error).__name__
