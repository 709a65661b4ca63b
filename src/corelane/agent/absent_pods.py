"""Pods that were on the node, and that the kubelet does not list: gone, or not listed again yet.

A kubelet that has just started lists no pods for about a second, and those of the API server only once it has
reached that. So a pod is gone only if the API server does not have it. Where that cannot be asked, a pod is
gone once it was absent for a while from lists that prove their source: a kubelet gets all of its pods from
the API server at once, and static pods from their directory without it. A static pod, of which the API server
has a copy at best, is gone once it was absent for a while in any case.
"""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from corelane.kube import translate
from corelane.kube.client import APIError, KubeClient
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
    """Asks the API server of one node's absent pods; `clock` is monotonic."""

    def __init__(self, client: KubeClient, node_name: str, clock: Callable[[], float]) -> None:
        self._client = client
        self._node = node_name
        self._clock = clock
        self._since: dict[str, float] = {}

    async def remaining(
        self, absent: Mapping[str, AbsentPod], listed: Iterable[Pod], seconds: float = ANSWER_SECONDS
    ) -> frozenset[str]:
        """Return the UIDs of absent pods that may still be there; waits `seconds` for the API server."""
        now = self._clock()
        self._since = {uid: self._since.get(uid, now) for uid in absent}
        if not absent:
            return frozenset()
        try:
            async with asyncio.timeout(seconds):
                return await self._confirmed(absent) | self._recent_static(absent, now)
        except (APIError, TimeoutError):
            proved = any(not translate.is_static(pod) for pod in listed)
            return frozenset(
                uid
                for uid, pod in absent.items()
                if now - self._since[uid] < ABSENT_SECONDS or not (pod.static or proved)
            )

    def _recent_static(self, absent: Mapping[str, AbsentPod], now: float) -> frozenset[str]:
        """Return static pods that were listed a while ago: that there is no mirror proves nothing."""
        return frozenset(
            uid for uid, pod in absent.items() if pod.static and now - self._since[uid] < ABSENT_SECONDS
        )

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
