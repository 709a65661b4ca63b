"""Pods that a PreEnqueue plugin keeps from being tried, and the changes that may let them pass."""

from collections.abc import Callable
from functools import partial

from corelane.reasons import Code, Reason
from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.cache.points import ExtensionPoints
from corelane.scheduler.framework.changes import ClusterChange
from corelane.scheduler.framework.plugin import PreEnqueuePlugin, Rejection
from corelane.scheduler.framework.profile import Profile
from corelane.scheduler.queue.hints import helps
from corelane.scheduler.queue.waiting import Waiting


def answer(info: PodInfo, plugin: PreEnqueuePlugin) -> Rejection | None:
    """What a plugin says; one that raises an error keeps the pod gated, as upstream's status Error."""
    try:
        return plugin.pre_enqueue(info)
    except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
        return Rejection.of(plugin.name, Reason(Code.PLUGIN_FAILED, (type(error).__name__, str(error))))


class GatedPods:
    """Gated pods by their UID."""

    def __init__(self, profile: Profile, points: Callable[[], ExtensionPoints]) -> None:
        self._profile, self._points = profile, points
        self._pods: dict[str, Waiting] = {}
        self._listens = profile.helped_by(plugin.name for plugin in profile.pre_enqueue)

    def __len__(self) -> int:
        return len(self._pods)

    def gate(self, info: PodInfo) -> Rejection | None:
        """Return why the pod must not be tried."""
        points = self._points()
        begun = points.now()
        gate = next(filter(None, map(partial(answer, info), self._profile.of(info).pre_enqueue)), None)
        # Upstream's status is Success for gated pods too (runPreEnqueuePlugins, 1.36).
        points.alone("PreEnqueue", info.pod.spec.scheduler_name, begun)
        return gate

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
        return helps(self._profile.of(waiting.info).hints(gate.plugin).items(), waiting.info, change)
