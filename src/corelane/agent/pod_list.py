"""Pods of the node by the UID under which they run, from the kubelet, or else from the API server."""

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final, Protocol

from corelane.agent.absent_pods import AbsentPod
from corelane.kube import translate
from corelane.kube.decode import Malformed
from corelane.kube.pod import Pod

_OF_MANIFEST: Final = re.compile("[0-9a-f]{32}")
"""UID of a static pod: a hash, without dashes."""


class PodListener(Protocol):
    """Receiver of changes of the pods on the node."""

    def pod_seen(self, uid: str, pod: Pod) -> None:
        """A pod was added or changed; `uid` is the one under which it runs."""

    def pod_malformed(self, uid: str, bad: Malformed) -> None:
        """A pod exists, but cannot be decoded."""

    def pod_gone(self, uid: str) -> None:
        """A pod is not listed any more."""

    def pods_listed(self, remaining: frozenset[str], began: float | None) -> None:
        """Every pod was reported of a list that `began` then (monotonic), but for `remaining` UIDs."""


class PodList:
    """Pods of the node by the UID under which they run, from the kubelet, or else from the API server."""

    def __init__(self, listener: PodListener) -> None:
        self.pods: dict[str, Pod] = {}
        self._malformed: dict[str, Malformed] = {}
        self._listener = listener
        self.listed = False
        self.remaining: frozenset[str] = frozenset()
        """UIDs of pods that the last list lacked, and that may still be there."""

    def absent(
        self, allocated: Mapping[str, str], pods: Iterable[Pod], malformed: Iterable[Malformed]
    ) -> dict[str, AbsentPod]:
        """Return the pods of the last lists, and the allocated ones, that a new list lacks."""
        known = {
            uid: AbsentPod(*_names(title), static=bool(_OF_MANIFEST.fullmatch(uid)))
            for uid, title in allocated.items()
        }
        known |= {uid: AbsentPod(bad.namespace, bad.name) for uid, bad in self._malformed.items()}
        for uid, pod in self.pods.items():
            meta = pod.metadata
            known[uid] = AbsentPod(meta.namespace, meta.name, translate.is_static(pod))
        listed = {translate.running_uid(pod) for pod in pods} | {bad.uid for bad in malformed}
        return {uid: pod for uid, pod in known.items() if uid not in listed}

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
        known = self.pods.keys() | self._malformed.keys()
        for uid in known - current.keys() - bad.keys() - self.remaining:
            self.drop(uid)
        for item in bad.values():
            self.put_malformed(item)
        for pod in current.values():
            self.put(pod)
        self.listed = True
        self._listener.pods_listed(self.remaining, began)

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
            self._listener.pod_malformed(bad.uid, bad)

    def put(self, pod: Pod) -> None:
        """Take one pod; nothing happens if it is the object that was taken before."""
        uid = translate.running_uid(pod)
        if self.pods.get(uid) is not pod:
            self._malformed.pop(uid, None)
            self.pods[uid] = pod
            self._listener.pod_seen(uid, pod)

    def drop(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self.pods.pop(uid, None)
        self._malformed.pop(uid, None)
        self._listener.pod_gone(uid)


def _is_of_file(pod: Pod) -> bool:
    """Whether a pod is a static one, or a static one's mirror."""
    return translate.is_static(pod) or translate.running_uid(pod) != pod.metadata.uid


def _names(title: str) -> tuple[str, str]:
    """Return namespace and name of a pod in the ledger; both empty where only its UID is known."""
    namespace, _, name = title.partition("/")
    return (namespace, name) if namespace else ("", "")
