"""The embedded server's objects of nodes, for agents in this process; its errors as those of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.stored_objects import StoredObject, StoreError
from corelane.embedded.apiserver.write.node_objects import NodeObjects
from corelane.kube.apierrors import APIError
from corelane.kube.meta import API

_GATHER_SECONDS: Final = 0.02
"""Time for which an event waits for others, to be committed with them."""


class InProcessNodes:
    """`agent.publication.node_objects.NodeObjects` of the embedded server."""

    def __init__(self, objects: NodeObjects) -> None:
        self._objects = objects
        self._events: list[tuple[dict[str, Any], asyncio.Future[None]]] = []
        """Events that wait for the next commit, and who waits for each."""

    def get(self, api: API, name: str) -> StoredObject | None:
        return self._objects.get(api, name)

    def ensure(self, body: Mapping[str, Any], manager: str = "corelane") -> tuple[StoredObject, bool]:
        with _as_answers():
            return self._objects.ensure(body, manager)

    async def record_event(self, body: dict[str, Any]) -> None:
        """Create an event, with all others of the next `_GATHER_SECONDS`. Raises APIError."""
        loop = asyncio.get_running_loop()
        if not self._events:
            loop.call_later(_GATHER_SECONDS, self._record_events)
        written = loop.create_future()
        self._events.append((body, written))
        await written

    def _record_events(self) -> None:
        waiting, self._events = self._events, []
        answers: Sequence[Exception | None]
        try:
            answers = self._objects.record_events(body for body, _ in waiting)
        except Exception as error:  # noqa: BLE001 - for those that wait
            answers = [error] * len(waiting)
        for (_, written), answer in zip(waiting, answers, strict=True):
            if written.done():
                continue
            if answer is None:
                written.set_result(None)
            else:
                written.set_exception(_as_answer(answer))

    async def patch_status(self, namespace: str, name: str, uid: str, status: dict[str, Any]) -> None:
        with _as_answers():
            await self._objects.patch_status(namespace, name, uid, status)

    def merge(
        self, api: API, name: str, patch: dict[str, Any], manager: str, version: str
    ) -> StoredObject | None:
        with _as_answers():
            return self._objects.merge(api, name, patch, manager, version)

    async def committed(self) -> None:
        with _as_answers():
            await self._objects.committed()

    def renew_leases(self, names: Iterable[str], at: float) -> list[str]:
        with _as_answers():
            return self._objects.renew_leases(names, at)

    def refresh_heartbeats(self, names: Iterable[str], conditions: Collection[str], at: float) -> list[str]:
        with _as_answers():
            return self._objects.refresh_heartbeats(names, conditions, at)


@contextmanager
def _as_answers() -> Iterator[None]:
    try:
        yield
    except (StatusError, StoreError) as error:
        raise _as_answer(error) from error


def _as_answer(error: Exception) -> Exception:
    """Return the error as that of a request."""
    if isinstance(error, StatusError):
        return APIError(error.code, error.reason, error.message, is_status=True)
    if isinstance(error, StoreError):
        return APIError(500, "InternalError", str(error), is_status=True)
    return error
