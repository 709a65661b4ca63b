"""PrioritySort: higher priority first, then older pods."""

from typing import Any

from corelane.scheduler.cache.pods import PodInfo


class PrioritySort:
    """Orders the queue by priority, then by creation."""

    name = "PrioritySort"

    def sort_key(self, pod: PodInfo) -> tuple[Any, ...]:
        return (-pod.pod.spec.priority, pod.pod.metadata.creation_timestamp)
