"""Events about objects; what was reported last of an object is not reported again."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from corelane.kube.client import APIError, KubeClient
from corelane.kube.meta import Object, rfc3339

_REMEMBERED: Final = 4096
_LONGEST_MESSAGE: Final = 1024


class EventRecorder:
    """Writes events of one component."""

    def __init__(self, client: KubeClient, component: str, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives Unix seconds."""
        self._client = client
        self._component = component
        self._clock = clock
        self._latest: OrderedDict[tuple[str, str], str] = OrderedDict()

    async def record(self, obj: Object, kind: str, reason: str, message: str) -> None:
        """Write an event; `kind` is Normal or Warning. A failed request is dropped: events are no state."""
        key = (obj.metadata.uid, reason)
        if self._latest.get(key) == message:
            return
        self._latest[key] = message
        self._latest.move_to_end(key)
        while len(self._latest) > _REMEMBERED:
            self._latest.popitem(last=False)
        try:
            await self._client.create(self._event(obj, kind, reason, message[:_LONGEST_MESSAGE]))
        except APIError:
            self._latest.pop(key, None)

    def _event(self, obj: Object, kind: str, reason: str, message: str) -> dict[str, Any]:
        meta, now = obj.metadata, rfc3339(self._clock())
        about = {
            "apiVersion": obj.api.api_version,
            "kind": obj.api.kind,
            "namespace": meta.namespace,
            "name": meta.name,
            "uid": meta.uid,
        }
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{meta.name}.{secrets.token_hex(8)}",
                "namespace": meta.namespace or "default",
            },
            "involvedObject": {name: text for name, text in about.items() if text},
            "type": kind,
            "reason": reason,
            "message": message,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
