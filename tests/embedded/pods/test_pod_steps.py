"""Restart policies and the crash-loop back-off."""

import pytest

from corelane.embedded.pods import pod_steps
from corelane.embedded.pods.records import (
    ContainerExit,
    ContainerPlan,
    ContainerProgress,
    ContainerStage,
    RestartPolicy,
)
from corelane.workload.request import ContainerKind

APP, INIT, SIDECAR = ContainerKind.APP, ContainerKind.INIT, ContainerKind.SIDECAR
ALWAYS, ON_FAILURE, NEVER = RestartPolicy


@pytest.mark.parametrize(
    ("policy", "kind", "code", "expected"),
    [
        (ALWAYS, APP, 0, True),
        (ALWAYS, APP, 1, True),
        (ON_FAILURE, APP, 0, False),
        (ON_FAILURE, APP, 1, True),
        (NEVER, APP, 0, False),
        (NEVER, APP, 1, False),
        (ALWAYS, INIT, 0, False),
        (ALWAYS, INIT, 1, True),
        (ON_FAILURE, INIT, 1, True),
        (NEVER, INIT, 1, False),
        (NEVER, SIDECAR, 0, True),
        (ON_FAILURE, SIDECAR, 0, True),
    ],
)
def test_containers_restart_by_policy_kind_and_exit_code(policy, kind, code, expected):
    assert pod_steps.should_restart(policy, kind, ContainerExit(code, 0.0)) is expected


def test_an_init_container_out_of_memory_has_failed_whatever_its_exit_code():
    """As the kubelet (`isInitContainerFailed`): a child may have been killed, and its work is missing."""
    ended = ContainerExit(0, 0.0, reason="OOMKilled")
    restarts = {kind: pod_steps.should_restart(ON_FAILURE, kind, ended) for kind in (INIT, APP)}
    assert restarts == {INIT: True, APP: False}
    assert not pod_steps.should_restart(NEVER, INIT, ended)
    container = ContainerProgress(ContainerPlan("c", INIT), ContainerStage.EXITED, ended=ended)
    assert not container.initialized


def test_the_first_restart_is_immediate_then_the_wait_doubles_up_to_five_minutes():
    backoff, now, waits = None, 1000.0, []
    for _ in range(8):
        ready = pod_steps.restart_time(backoff, now)
        waits.append(max(0.0, ready - now))
        exited_at, now = now, max(now, ready)
        backoff = pod_steps.raised_backoff(backoff, exited_at, now)
    assert waits == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]


def test_a_run_of_ten_minutes_resets_the_back_off():
    backoff = pod_steps.raised_backoff(pod_steps.raised_backoff(None, 1000.0, 1000.0), 1000.0, 1000.0)
    assert pod_steps.restart_time(backoff, 1600.0) == 1620.0
    assert pod_steps.restart_time(backoff, 1601.0) == 0.0
    assert pod_steps.raised_backoff(backoff, 1601.0, 1601.0).delay == 10.0
