"""Why a pod has no log, in words for `kubectl logs`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from corelane.agent.agent import LogNotFound
from corelane.apiserver.http.pod_logs import LogOptions
from corelane.apiserver.status_errors import StatusError
from corelane.app.up.podlogs import PodLogs


class NoLog:
    """An agent without any log."""

    async def logs(self, *_: object, **__: object) -> None:
        raise LogNotFound("as the agent says")


def refusal(status: dict[str, Any], **options: Any) -> str:
    pod = {"metadata": {"namespace": "default", "name": "p"}, "spec": {"nodeName": "n"}, "status": status}
    logs = PodLogs({"n": NoLog()})  # type: ignore[dict-item]
    with pytest.raises(StatusError) as refused:
        asyncio.run(logs.open(pod, LogOptions(container="c", **options)))
    return refused.value.message


def test_a_rejected_pod_has_its_reason_in_the_log() -> None:
    status = {"phase": "Failed", "reason": "CommandMissing", "message": "Pod was rejected: no command"}
    text = 'container "c" in pod "p" did not start: CommandMissing: Pod was rejected: no command'
    assert text in refusal(status)
    assert "as the agent says" in refusal(status, previous=True)


def test_a_waiting_container_has_its_own_reason_in_the_log() -> None:
    waiting = {"reason": "CreateContainerConfigError", "message": 'configmap "m" not found'}
    status = {"phase": "Pending", "containerStatuses": [{"name": "c", "state": {"waiting": waiting}}]}
    assert 'is waiting to start: CreateContainerConfigError: configmap "m" not found' in refusal(status)
    assert "as the agent says" in refusal({"phase": "Pending"})
