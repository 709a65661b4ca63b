"""Why a pod has no log, in words for `kubectl logs`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from corelane.embedded.apiserver.http.pod_logs import LogOptions
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.pods.pod_agent import LogNotFound
from corelane.embedded.up.agent_links import PodLogs


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


def _ended(**more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": 127, "reason": "StartError", "message": "exec: no such file"} | more}


def test_a_start_that_failed_for_good_is_not_waited_for() -> None:
    """`ContainerCreating` would be untrue: the pod has ended."""
    status = {"phase": "Failed", "containerStatuses": [{"name": "c", "state": _ended()}]}
    assert refusal(status) == 'container "c" in pod "p" did not start: StartError: exec: no such file'
    ran = {"phase": "Failed", "containerStatuses": [{"name": "c", "state": _ended(containerID="x")}]}
    assert refusal(ran) == "as the agent says"


def test_back_off_names_the_cause_of_the_last_failed_start() -> None:
    waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 10s"}}
    status = {"containerStatuses": [{"name": "c", "state": waiting, "lastState": _ended()}]}
    text = "is waiting to start: CrashLoopBackOff: back-off 10s: last attempt: StartError: exec: no such file"
    assert refusal(status).endswith(text)


@pytest.mark.parametrize(
    ("end", "why"),
    [
        (_ended(containerID="x", reason="OOMKilled"), "init container i failed: OOMKilled, exit code 127"),
        (_ended(), "init container i failed: StartError: exec: no such file"),
        (_ended(containerID="x", exitCode=0), "the pod has ended"),
    ],
)
def test_container_after_a_failed_init_container_has_that_as_its_reason(
    end: dict[str, Any], why: str
) -> None:
    status = {
        "phase": "Failed",
        "initContainerStatuses": [{"name": "i", "state": end}],
        "containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "PodInitializing"}}}],
    }
    assert refusal(status) == f'container "c" in pod "p" did not start: {why}'
