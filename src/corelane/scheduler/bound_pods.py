"""What became of bound pods: whether a node refused one, or allocated other CPUs than were proposed.

Both are counted. A refused pod has phase Failed and a reason of its node's (OutOfcpu, TopologyAffinityError,
UnexpectedAdmissionError, …). The scheduler's watch leaves ended pods out, so it sees a refused pod vanish in
phase Pending, and reads it once.
"""

import asyncio
from typing import Final, NoReturn

from corelane.kube import keys, translate
from corelane.kube.apierrors import APIError
from corelane.kube.client import KubeClient
from corelane.kube.pod import Pod
from corelane.kube.translate import TranslationError

_MOST_WAITING: Final = 10_000
_RECORDS: Final = (keys.RESOURCE_STATUS, keys.CONTAINER_CPUSETS)
_NOT_OF_THE_NODE: Final = frozenset({"", "Evicted", "Preempting", "NodeLost", "NodeShutdown", "Shutdown"})
"""Reasons of failed pods that are not refusals at admission; "" is a container that failed."""


class BoundPodsReporter:
    """Hooks for logs and metrics, empty by default."""

    def reallocated(self, pod: Pod, proposed: str, allocated: str) -> None:
        """A node allocated other CPUs than the scheduler had proposed; both as text."""

    def refused(self, pod: Pod, node: str, reason: str, message: str) -> None:
        """A node refused a pod after it was bound."""


class BoundPods:
    """Compares what was bound with what nodes made of it."""

    def __init__(self, client: KubeClient, reporter: BoundPodsReporter) -> None:
        self._client = client
        self._reporter = reporter
        self._vanished: asyncio.Queue[Pod] = asyncio.Queue(_MOST_WAITING)

    def changed(self, old: Pod | None, new: Pod | None) -> None:
        """Take a change of a pod."""
        if old is None or not old.spec.node_name or keys.SCHEDULED_BY not in old.metadata.annotations:
            return
        if new is not None and not new.ended:
            self._compare(old, new)
        elif old.status.phase == "Pending" and not old.metadata.deletion_timestamp:
            if new is not None:
                self._report_refusal(new)
            elif not self._vanished.full():
                self._vanished.put_nowait(old)

    async def run(self) -> NoReturn:
        """Read pods that vanished before they ran, until cancelled."""
        while True:
            pod = await self._vanished.get()
            try:
                now = await self._client.get(Pod, pod.metadata.name, pod.metadata.namespace)
            except APIError:
                # Deleted since, or unreadable: a count that is missing does no harm.
                continue
            if now.metadata.uid == pod.metadata.uid:
                self._report_refusal(now)

    def _report_refusal(self, pod: Pod) -> None:
        status = pod.status
        if status.phase == "Failed" and status.reason not in _NOT_OF_THE_NODE:
            self._reporter.refused(pod, pod.spec.node_name, status.reason, status.message)

    def _compare(self, old: Pod, new: Pod) -> None:
        before, after = old.metadata.annotations, new.metadata.annotations
        if all(before.get(key) == after.get(key) for key in _RECORDS):
            return
        proposed, allocated = _cpus(old), _cpus(new)
        if proposed and allocated and proposed != allocated:
            self._reporter.reallocated(new, proposed, allocated)


def _cpus(pod: Pod) -> str:
    """CPUs of the pod's containers as text; "" without any or for annotations that cannot be read."""
    try:
        proposal = translate.request(pod).proposal
    except TranslationError:
        return ""
    return ", ".join(f"{name} {cpus}" for name, cpus in sorted(proposal.items()))
