"""Pod logs for the API server, read from the agent of each pod's node."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from corelane.embedded.apiserver import status_errors
from corelane.embedded.apiserver.http.pod_logs import LogOptions, LogUnavailableError
from corelane.embedded.pods.pod_agent import Agent, LogNotFound
from corelane.runtime.base import LogSelection


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
    found: Mapping[str, Any] = next((one for one in statuses if one["name"] == options.container), {})
    if failed := _failed_start(found.get("state", {})):
        return f"{subject} did not start: {failed}"
    waiting = found.get("state", {}).get("waiting")
    if waiting is None:
        return ""
    if status.get("phase") in ("Failed", "Succeeded"):
        return f"{subject} did not start: {_failed_init(status) or 'the pod has ended'}"
    last = _failed_start(found.get("lastState", {}))
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
    for one in status.get("initContainerStatuses", ()):
        ended = one.get("state", {}).get("terminated", {})
        if ended.get("exitCode"):
            why = _failed_start(one["state"]) or f"{ended.get('reason')}, exit code {ended['exitCode']}"
            return f"init container {one['name']} failed: {why}"
    return ""


def _since(options: LogOptions) -> float | None:
    """Unix seconds."""
    if options.since_time is not None:
        return options.since_time.timestamp()
    return None if options.since_seconds is None else time.time() - options.since_seconds
