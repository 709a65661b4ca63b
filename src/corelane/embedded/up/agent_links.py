"""What agents and the API server of one process share without requests: objects of nodes, and pod logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.http.pod_logs import LogOptions, LogUnavailableError
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.stored_objects import StoredObject, StoreError
from corelane.embedded.apiserver.write.node_objects import NodeObjects
from corelane.embedded.pods.pod_agent import Agent, LogNotFound
from corelane.kube.apierrors import APIError
from corelane.kube.meta import API
from corelane.runtime.base import LogSelection

_GATHER_SECONDS: Final = 0.02
"""Time for which an event waits for others, to be committed with them."""


class InProcessNodes:
    """`embedded.pods.registration.HeartbeatObjects` of the embedded server."""

    def __init__(self, objects: NodeObjects) -> None:
        self._objects = objects
        self._events: list[tuple[dict[str, Any], asyncio.Future[None]]] = []
        """Events that wait for the next commit, and the future of each caller."""

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


class PodLogs:
    """The API server's `LogSource` over the agents of this process, by node name."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        self._agents = agents

    async def open(self, pod: Mapping[str, Any], options: LogOptions) -> AsyncIterator[bytes]:
        """Raises StatusError for a missing log, LogUnavailableError for a node of another process."""
        node = pod["spec"].get("nodeName", "")
        agent = self._agents.get(node)
        if agent is None:
            raise LogUnavailableError(f"node {node!r} has no agent in this process")
        meta = pod["metadata"]
        choice = LogSelection(
            tail_lines=options.tail_lines,
            since=_since(options),
            timestamps=options.timestamps,
            limit_bytes=options.limit_bytes,
        )
        try:
            return await agent.logs(
                meta["namespace"],
                meta["name"],
                options.container,
                previous=options.previous,
                follow=options.follow,
                choice=choice,
            )
        except LogNotFound as error:
            raise status_errors.bad_request(_never_ran(pod, options) or str(error)) from error


def _never_ran(pod: Mapping[str, Any], options: LogOptions) -> str:
    """Return why the pod's container has not run, by the pod's status; empty without a reason there."""
    status = pod.get("status", {})
    subject = f'container "{options.container}" in pod "{pod["metadata"]["name"]}"'
    statuses = [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]
    if options.previous:
        return ""
    if status.get("phase") == "Failed" and not statuses and status.get("reason"):
        return f"{subject} did not start: {status['reason']}: {status.get('message', '')}"
    state: Mapping[str, Any] = next((one for one in statuses if one["name"] == options.container), {})
    if failed := _failed_start(state.get("state", {})):
        return f"{subject} did not start: {failed}"
    waiting = state.get("state", {}).get("waiting")
    if waiting is None:
        return ""
    if status.get("phase") in ("Failed", "Succeeded"):
        return f"{subject} did not start: {_failed_init(status) or 'the pod has ended'}"
    last = _failed_start(state.get("lastState", {}))
    why = [waiting.get("reason", ""), waiting.get("message", ""), last and f"last attempt: {last}"]
    return f"{subject} is waiting to start: {': '.join(filter(None, why))}"


def _failed_start(state: Mapping[str, Any]) -> str:
    """Return why a container's start failed; a container that ran has an id, and its log."""
    ended = state.get("terminated", {})
    if not ended or ended.get("containerID"):
        return ""
    return ": ".join(filter(None, (ended.get("reason", ""), ended.get("message", ""))))


def _failed_init(status: Mapping[str, Any]) -> str:
    """Return which init container failed, after which no other starts."""
    for container in status.get("initContainerStatuses", ()):
        ended = container.get("state", {}).get("terminated", {})
        if ended.get("exitCode"):
            why = _failed_start(container["state"]) or f"{ended.get('reason')}, exit code {ended['exitCode']}"
            return f"init container {container['name']} failed: {why}"
    return ""


def _since(options: LogOptions) -> float | None:
    """Unix seconds."""
    if options.since_time is not None:
        return options.since_time.timestamp()
    return None if options.since_seconds is None else time.time() - options.since_seconds
