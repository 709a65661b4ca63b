"""Sort keys of pods in the queue, which can be compared whatever the QueueSort plugin answers."""

from collections.abc import Callable
from typing import Any, Final

from corelane.scheduler.cache.pods import PodInfo
from corelane.scheduler.framework.checked import is_ours
from corelane.scheduler.framework.plugin import QueueSortPlugin
from corelane.scheduler.queue.waiting import SortKey


class _Last:
    """Comes after everything."""

    def __lt__(self, other: object) -> bool:
        return False

    def __le__(self, other: object) -> bool:
        return other is self

    def __gt__(self, other: object) -> bool:
        return other is not self

    def __ge__(self, other: object) -> bool:
        return True

    def __eq__(self, other: object) -> bool:
        return other is self

    def __hash__(self) -> int:
        return 0


LAST: Final = _Last()


class SortKeys:
    """Keys by a plugin. A pod for which it fails comes last, by priority and age."""

    def __init__(self, plugin: QueueSortPlugin, failed: Callable[[str, Exception], None]) -> None:
        """`failed` is called with the plugin's name and its error."""
        self._plugin, self._failed = plugin, failed
        self._trusted = is_ours(plugin)
        self._example: SortKey | None = None

    def of(self, info: PodInfo) -> SortKey:
        if self._trusted:
            return self._plugin.sort_key(info)
        try:
            key = self._plugin.sort_key(info)
            self._check(key)
        except Exception as error:  # noqa: BLE001 - a third party's plugin may raise anything
            self._failed(self._plugin.name, error)
            return LAST, -info.pod.spec.priority, info.pod.metadata.creation_timestamp
        return key

    def _check(self, key: SortKey) -> None:
        """Raise TypeError for a key that cannot be compared with the first one."""
        example = key if self._example is None else self._example
        try:
            _compare(key, example)
        except Exception as error:
            raise TypeError(f"sort keys {key!r:.100} and {example!r:.100} cannot be compared") from error
        self._example = example


def _compare(one: Any, other: Any) -> None:
    """Compare each element, also those that a comparison of tuples does not come to."""
    if isinstance(one, tuple) and isinstance(other, tuple):
        for left, right in zip(one, other, strict=False):
            _compare(left, right)
    bool(one < other), bool(other < one), bool(one == other)
