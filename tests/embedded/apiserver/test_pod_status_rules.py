"""Updates of a pod's status that are refused: ends that are final, addresses."""

import copy

import pytest

from corelane.embedded.apiserver import validation
from corelane.embedded.apiserver.served_kinds import PODS
from corelane.embedded.apiserver.write import strategy
from support.pod_faults import agree, prepared, spec


@pytest.mark.parametrize(
    ("policy", "exit_code", "allowed"),
    [("Always", 0, True), ("Never", 1, False), ("OnFailure", 1, True), ("OnFailure", 0, False)],
)
def test_a_container_that_ended_runs_again_only_if_it_may(policy, exit_code, allowed):
    pod = prepared(spec(restartPolicy=policy))
    pod["metadata"]["resourceVersion"] = "1"
    ended = {"name": "c", "state": {"terminated": {"exitCode": exit_code}}}
    running = {"name": "c", "state": {"running": {"startedAt": None}}}
    pod["status"]["containerStatuses"] = [ended]
    found = status_faults(pod, {"containerStatuses": [running]})
    refusal = "status.containerStatuses[0].state: Forbidden…"
    assert agree(found, [] if allowed else [refusal])


def status_faults(old, status):
    new = copy.deepcopy(old)
    new["status"] |= status
    strategy.prepare_update(PODS, new, old, "status")
    causes = validation.update(PODS, new, old, "status")
    return [f"{cause.field}: {cause.message}" for cause in causes]


@pytest.mark.parametrize(
    ("pod", "status", "expected"),
    [
        (
            prepared(),
            {"conditions": [{"type": "Ready", "status": "True", "observedGeneration": -1}]},
            ["status.conditions[0].observedGeneration: Invalid"],
        ),
        (prepared(spec(nodeName="n")), {"nominatedNodeName": "m"}, ["status.nominatedNodeName: Forbidden"]),
        (
            prepared(),
            {"podIPs": [{"ip": "1.2"}, {"ip": "::1"}]},
            ["status.podIPs[0]: Invalid", "status.podIPs: Invalid"],
        ),
        (prepared(), {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.5"}]}, ["status.podIPs: Invalid"]),
        (prepared(), {"podIPs": [{"ip": "1.2.3.4"}, {"ip": "::1"}], "podIP": "1.2.3.4"}, []),
        (prepared(), {"hostIP": "1.2.3.4", "hostIPs": [{"ip": "1.2.3.4"}], "phase": "Running"}, []),
    ],
)
def test_a_status_is_refused_by_field_and_kind(pod, status, expected):
    pod["metadata"]["resourceVersion"] = "1"
    assert agree(status_faults(pod, status), expected)


def test_a_condition_keeps_the_generation_it_was_observed_at():
    pod = prepared()
    pod["status"]["conditions"] = [{"type": "Ready", "status": "True", "observedGeneration": 3}]
    new = copy.deepcopy(pod)
    new["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    strategy.prepare_update(PODS, new, pod, "status")
    assert new["status"]["conditions"][0]["observedGeneration"] == 3
