"""A pod's status at the API server."""

from corelane.agent.allocation import cpu_moves
from corelane.agent.allocation.events import ContainerRun
from corelane.agent.allocation.records import PodCPUs, RunCPUs, StatusReason
from corelane.cpuset import CPUSet
from corelane.embedded.pods import pod_steps
from corelane.embedded.pods.pod_steps import PodHost
from corelane.embedded.pods.records import (
    ConditionTransition,
    ContainerExit,
    ContainerStage,
    PodRecord,
    RestartPolicy,
    container_records,
)
from corelane.kube.keys import PINNED
from support.agent_world import APP, plan

PLACE = PodHost(("10.0.0.7", "fd00::7"))


def a_pod(*containers, **more):
    made = plan("u", *(containers or (("a", APP, 1000),)), **more)
    return PodRecord(made, container_records(made.containers), PodCPUs(made, present=True), started_at=1000.0)


def run(pod, name, attempt=0):
    container = pod.containers[name]
    container.stage, container.attempt = ContainerStage.STARTING, attempt
    container.cpus = RunCPUs(pod.uid, name, pending=CPUSet([1]))
    pod.cpus.runs.append(container.cpus)
    cpu_moves.note_started(container.cpus, f"id-{name}-{attempt}")
    pod_steps.note_started(container, f"id-{name}-{attempt}", 1000.0, 1000.0)
    return container


def shown(pod, at=1000.0, place=PLACE):
    return pod_steps.pod_status(pod, at, at, place)


def condition(pod, kind, at=1000.0):
    return next(one for one in shown(pod, at)["conditions"] if one["type"] == kind)


def test_a_waiting_container_shows_the_reason():
    found = shown(a_pod())
    assert found["phase"] == "Pending"
    assert found["containerStatuses"] == [
        {
            "name": "a",
            "image": "image",
            "imageID": "",
            "ready": False,
            "started": False,
            "restartCount": 0,
            "state": {"waiting": {"reason": "ContainerCreating"}},
            "lastState": {},
        }
    ]


def test_a_running_pod_is_ready_and_has_its_hosts_addresses():
    pod = a_pod()
    run(pod, "a")
    found = shown(pod)
    assert found["phase"] == "Running"
    assert found["containerStatuses"][0]["state"] == {"running": {"startedAt": "1970-01-01T00:16:40Z"}}
    assert found["containerStatuses"][0]["containerID"] == "corelane://id-a-0"
    assert (found["hostIP"], found["podIP"]) == ("10.0.0.7", "10.0.0.7")
    assert found["podIPs"] == [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}]
    assert condition(pod, "Ready")["status"] == "True"
    assert "reason" in condition(pod, "Ready"), "null takes an old reason away"


def test_a_condition_keeps_its_time_until_it_changes():
    pod = a_pod()
    assert condition(pod, "Ready", 1000.0)["lastTransitionTime"] == "1970-01-01T00:16:40Z"
    assert condition(pod, "Ready", 2000.0)["lastTransitionTime"] == "1970-01-01T00:16:40Z"
    run(pod, "a")
    assert condition(pod, "Ready", 3000.0)["lastTransitionTime"] == "1970-01-01T00:50:00Z"


def test_a_condition_set_before_the_agents_start_keeps_its_time():
    pod = a_pod()
    pod.conditions = {"PodScheduled": ConditionTransition("True", 500.0)}
    assert condition(pod, "PodScheduled")["lastTransitionTime"] == "1970-01-01T00:08:20Z"


def test_the_pinned_condition_follows_the_kernels_confirmation():
    pod = a_pod(("a", APP, 1000), ("b", APP, 0))
    assert condition(pod, PINNED)["reason"] == "NothingRuns"
    one, other = run(pod, "a"), run(pod, "b")
    assert condition(pod, PINNED)["message"].endswith("[a b]")
    for container in (one, other):
        cpu_moves.note_allowed(container.cpus, CPUSet([1]))
        cpu_moves.confirm(container.cpus)
    assert condition(pod, PINNED)["status"] == "True"
    cpu_moves.note_allowed(one.cpus, CPUSet([1, 2]))
    cpu_moves.confirm(one.cpus)
    assert condition(pod, PINNED)["message"].endswith("[a]")


def test_without_confirmation_there_is_no_pinned_condition():
    kinds = [one["type"] for one in shown(a_pod(), place=PodHost(confirms=False))["conditions"]]
    assert PINNED not in kinds


def test_a_terminated_state_has_all_members():
    pod = a_pod(policy=RestartPolicy.NEVER)
    container = run(pod, "a")
    ended = ContainerRun(
        id=container.id,
        uid="u",
        container="a",
        attempt=0,
        live=False,
        started_at=1000.0,
        finished_at=1005.0,
        exit_code=137,
        signal=9,
    )
    pod_steps.note_exit(container, pod_steps.exit_of(ended, 1006.0), 1006.0)
    found = shown(pod)
    assert found["phase"] == "Failed"
    assert found["containerStatuses"][0]["state"]["terminated"] == {
        "exitCode": 137,
        "reason": "Error",
        "signal": 9,
        "startedAt": "1970-01-01T00:16:40Z",
        "finishedAt": "1970-01-01T00:16:45Z",
        "containerID": "corelane://id-a-0",
    }
    assert condition(pod, "Ready")["reason"] == "PodFailed"


def test_between_two_runs_the_last_one_is_the_last_state():
    pod = a_pod()
    pod_steps.note_exit(run(pod, "a"), ContainerExit(3, 1005.0, id="id-a-0"), 1005.0)
    assert shown(pod, 1006.0)["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3
    run(pod, "a", 1)
    found = shown(pod, 1007.0)["containerStatuses"][0]
    assert "running" in found["state"]
    assert found["lastState"]["terminated"]["exitCode"] == 3
    assert found["restartCount"] == 1


def test_a_rejected_pods_status_has_only_the_reason():
    pod = a_pod()
    pod.rejected = StatusReason("OutOfcpu", "Node didn't have enough resource: cpu")
    assert shown(pod) == {
        "phase": "Failed",
        "reason": "OutOfcpu",
        "message": "Pod was rejected: Node didn't have enough resource: cpu",
        "startTime": "1970-01-01T00:16:40Z",
    }
