"""Pods of the node by the UID under which they run, from the kubelet, or else from the API server.

A kubelet that has just started lists no pods for about a second, and those of the API server only once it
has reached that. So a pod is gone only if the API server does not have it. Where that cannot be asked, a
pod is gone once it was absent for a while from lists that prove their source: a kubelet gets all of its
pods from the API server at once, and static pods from their directory without it. A static pod, of which
the API server has a copy at best, is gone once it was absent for a while in any case.
"""

import asyncio
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from corelane.agent.allocation import events
from corelane.agent.bound_pods import bound_pod
from corelane.agent.event_loop import Clocks, EventQueue
from corelane.agent.publication.publisher import Publisher
from corelane.agent.reporting import AgentReporter
from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
from corelane.kube.decode import Malformed
from corelane.kube.pod import Pod

ABSENT_SECONDS: Final = 30.0
"""For which a pod is absent before the kubelet's lists alone prove that it is gone."""
ANSWER_SECONDS: Final = 1.0
_MOST_REQUESTS: Final = 5
"""More pods than that are asked for in one list."""


@dataclass(frozen=True, slots=True)
class AbsentPod:
    """Names of a pod that is not listed, "" where only its UID is known; whether it comes from a file."""

    namespace: str = ""
    name: str = ""
    static: bool = False


class AbsentPods:
    """Asks the API server of one node's absent pods."""

    def __init__(self, client: KubeClient, node_name: str, clocks: Clocks) -> None:
        self._client = client
        self._node = node_name
        self._clocks = clocks
        self._since: dict[str, float] = {}

    async def remaining(
        self, absent: Mapping[str, AbsentPod], listed: Iterable[Pod], seconds: float = ANSWER_SECONDS
    ) -> frozenset[str]:
        """Return the UIDs of absent pods that may still be there; waits `seconds` for the API server."""
        now = self._clocks.monotonic()
        self._since = {uid: self._since.get(uid, now) for uid in absent}
        if not absent:
            return frozenset()
        try:
            async with asyncio.timeout(seconds):
                there = await self._confirmed(absent)
        except (APIError, TimeoutError):
            proved = any(not translate.is_static(pod) for pod in listed)
            return frozenset(
                uid
                for uid, pod in absent.items()
                if now - self._since[uid] < ABSENT_SECONDS or not (pod.static or proved)
            )
        # That a static pod which was listed a while ago has no mirror proves nothing.
        recent = (uid for uid in absent if now - self._since[uid] < ABSENT_SECONDS)
        return there.union(uid for uid in recent if absent[uid].static)

    async def _confirmed(self, absent: Mapping[str, AbsentPod]) -> frozenset[str]:
        """Return the UIDs of pods that the API server has. Raises APIError."""
        if len(absent) > _MOST_REQUESTS or not all(pod.name for pod in absent.values()):
            listing = await self._client.list(Pod, field_selector=f"spec.nodeName={self._node}")
            there = _live(listing.items) | {bad.uid for bad in listing.malformed}
        else:
            there = _live(await asyncio.gather(*map(self._get, absent.values())))
        return frozenset(absent.keys() & there)

    async def _get(self, pod: AbsentPod) -> Pod | None:
        try:
            return await self._client.get(Pod, pod.name, pod.namespace)
        except APIError as error:
            if error.code == HTTPStatus.NOT_FOUND:
                return None
            raise


def _live(pods: Collection[Pod | None]) -> set[str]:
    return {translate.running_uid(pod) for pod in pods if pod is not None and not pod.ended}


_OF_MANIFEST: Final = re.compile("[0-9a-f]{32}")
"""UID of a static pod: a hash, without dashes."""


class PodList:
    """Pods by UID. Every change is put as an event; writes about a pod that is gone are dropped."""

    def __init__(
        self, queue: EventQueue, publisher: Publisher, reporter: AgentReporter, clocks: Clocks
    ) -> None:
        self.pods: dict[str, Pod] = {}
        self._malformed: dict[str, Malformed] = {}
        self._queue = queue
        self._publisher = publisher
        self._reporter = reporter
        self._clocks = clocks
        self.listed = False
        self.remaining: frozenset[str] = frozenset()
        """UIDs of pods that the last list lacked, and that may still be there."""

    def absent(
        self, allocated: Mapping[str, str], pods: Iterable[Pod], malformed: Iterable[Malformed]
    ) -> dict[str, AbsentPod]:
        """Return the pods of the last lists, and the allocated ones, that a new list lacks."""
        present = {
            uid: AbsentPod(*_names(title), static=bool(_OF_MANIFEST.fullmatch(uid)))
            for uid, title in allocated.items()
        }
        present |= {uid: AbsentPod(bad.namespace, bad.name) for uid, bad in self._malformed.items()}
        for uid, pod in self.pods.items():
            meta = pod.metadata
            present[uid] = AbsentPod(meta.namespace, meta.name, translate.is_static(pod))
        listed = {translate.running_uid(pod) for pod in pods} | {bad.uid for bad in malformed}
        return {uid: pod for uid, pod in present.items() if uid not in listed}

    def replace(
        self,
        pods: Iterable[Pod],
        malformed: Iterable[Malformed] = (),
        remaining: Collection[str] = (),
        began: float | None = None,
    ) -> None:
        """Take a whole list that `began` then; `remaining` pods that it lacks stay as they are."""
        current = {translate.running_uid(pod): pod for pod in pods}
        bad = {item.uid: item for item in malformed if item.uid}
        self.remaining = frozenset(remaining)
        before = self.pods.keys() | self._malformed.keys()
        for uid in before - current.keys() - bad.keys() - self.remaining:
            self.drop(uid)
        for item in bad.values():
            self.put_malformed(item)
        for pod in current.values():
            self.put(pod)
        self.listed = True
        self._queue.put(events.PodsListed(remaining=self.remaining, began=began, **self._clocks.times()))

    def running(self) -> frozenset[str] | None:
        """Return the UIDs of pods that have not ended; None before the first list."""
        if not self.listed:
            return None
        there = {uid for uid, pod in self.pods.items() if not pod.ended}
        return self.remaining | there | self._malformed.keys()

    def names(self) -> dict[str, str]:
        """Return `namespace/name` by UID."""
        return {uid: f"{pod.metadata.namespace}/{pod.metadata.name}" for uid, pod in self.pods.items()}

    def uids(self) -> dict[str, str]:
        """Return UIDs by `namespace/name`; of pods with one name that of the pod which has not ended."""
        ended_first = sorted(self.pods.items(), key=lambda item: not item[1].ended)
        return {f"{pod.metadata.namespace}/{pod.metadata.name}": uid for uid, pod in ended_first}

    def complete(self, pods: Iterable[Pod]) -> None:
        """Take the API server's list, whose malformed pods were put before; static pods it may lack."""
        pods = list(pods)
        remaining = self.remaining | {uid for uid, pod in self.pods.items() if _is_of_file(pod)}
        listed = {translate.running_uid(pod) for pod in pods}
        self.replace(pods, tuple(self._malformed.values()), remaining - listed)

    def deleted(self, pod: Pod) -> None:
        """Take note that the API server has a pod no more; a static one has lost its mirror alone."""
        if not _is_of_file(pod):
            self.drop(translate.running_uid(pod))

    def put_malformed(self, bad: Malformed) -> None:
        """Take a pod that exists but cannot be decoded; its last valid state is dropped."""
        if self._malformed.get(bad.uid) != bad:
            self._malformed[bad.uid] = bad
            self._reporter.malformed(str(bad))
            names = {"namespace": bad.namespace, "name": bad.name}
            self._queue.put(events.PodUndecodable(uid=bad.uid, **names, **self._clocks.times()))

    def put(self, pod: Pod) -> None:
        """Take one pod; nothing happens if it is the object that was taken before."""
        uid = translate.running_uid(pod)
        if self.pods.get(uid) is not pod:
            self._malformed.pop(uid, None)
            self.pods[uid] = pod
            self._queue.put(events.PodSeen(pod=bound_pod(uid, pod), **self._clocks.times()))

    def drop(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self.pods.pop(uid, None)
        self._malformed.pop(uid, None)
        self._publisher.forget(uid)
        self._queue.put(events.PodGone(uid=uid, **self._clocks.times()))


def _is_of_file(pod: Pod) -> bool:
    """Whether a pod is a static one, or a static one's mirror."""
    return translate.is_static(pod) or translate.running_uid(pod) != pod.metadata.uid


def _names(title: str) -> tuple[str, str]:
    """Return namespace and name of a pod in the ledger; both empty where only its UID is known."""
    namespace, _, name = title.partition("/")
    return (namespace, name) if namespace else ("", "")
