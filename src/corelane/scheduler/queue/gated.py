"""Pods that a PreEnqueue plugin keeps from being tried, and the changes that may let them pass."""

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.changes import ClusterChange
from corelane.scheduler.framework.plugin import Rejection
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.queue.hints import helps
from corelane.scheduler.queue.waiting import Waiting


class GatedPods:
    """Gated pods by their UID."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self._pods: dict[str, Waiting] = {}
        self._listens = profile.helped_by(plugin.name for plugin in profile.pre_enqueue)

    def __len__(self) -> int:
        return len(self._pods)

    def gate(self, info: PodInfo) -> Rejection | None:
        """Return why the pod must not be tried."""
        answers = (plugin.pre_enqueue(info) for plugin in self._profile.pre_enqueue)
        return next(filter(None, answers), None)

    def put(self, waiting: Waiting) -> None:
        self._pods[waiting.uid] = waiting

    def drop(self, uid: str) -> None:
        """Remove a pod, if it is there."""
        self._pods.pop(uid, None)

    def helped(self, change: ClusterChange) -> list[Waiting]:
        """Return the pods that their plugins may let pass after a change."""
        if not self._pods or not change.kind & self._listens:
            return []
        return [one for one in self._pods.values() if one.gate and self._may_help(one, one.gate, change)]

    def _may_help(self, waiting: Waiting, gate: Rejection, change: ClusterChange) -> bool:
        return helps(self._profile.hints(gate.plugin).items(), waiting.info, change)
