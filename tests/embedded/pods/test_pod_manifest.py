"""From manifest to plan: unsupported fields are refusals or warnings, never dropped silently."""

import os
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.agent import bound_pods
from corelane.embedded.pods import pod_manifest
from corelane.embedded.pods.pod_manifest import RunPod
from corelane.embedded.pods.records import RestartPolicy
from corelane.kube.keys import RESOURCE_STATUS
from corelane.workload.request import ContainerKind

COMMAND = {"command": ["sleep", "1"]}


def pod(container=None, metadata=None, status=None, **spec):
    tree = {
        "metadata": {"name": "web", "namespace": "default", "uid": "u", **(metadata or {})},
        "spec": {
            "nodeName": "n",
            "restartPolicy": "Always",
            "containers": [{"name": "c", **COMMAND, **(container or {})}],
            **spec,
        },
        "status": status or {},
    }
    return msgspec.json.decode(msgspec.json.encode(tree), type=RunPod)


def planned(*args, processes=True, **more):
    return pod_manifest.pod_plan(pod(*args, **more), processes=processes)


def test_args_alone_are_a_command():
    assert planned({"command": [], "args": ["sleep", "1"]}).refusal is None


def test_containers_in_order_with_their_kinds():
    inits = [{"name": "i", **COMMAND}, {"name": "s", "restartPolicy": "Always", **COMMAND}]
    found = planned(initContainers=inits, terminationGracePeriodSeconds=7, restartPolicy="OnFailure")
    assert [(one.name, one.kind) for one in found.containers] == [
        ("i", ContainerKind.INIT),
        ("s", ContainerKind.SIDECAR),
        ("c", ContainerKind.APP),
    ]
    assert (found.grace, found.restart_policy, found.refusal) == (7.0, RestartPolicy.ON_FAILURE, None)


@pytest.mark.parametrize(
    ("container", "spec", "reason", "words"),
    [
        ({"command": []}, {}, "CommandMissing", "container c: command is not set"),
        ({"command": [], "args": []}, {}, "CommandMissing", "container c: command is not set"),
        (
            {"volumeMounts": [{"name": "v", "mountPath": "/data"}]},
            {},
            "VolumesUnsupported",
            "volume v cannot be mounted at /data",
        ),
        ({"volumeDevices": [{"name": "v", "devicePath": "/d"}]}, {}, "VolumesUnsupported", "volumeDevices"),
        ({"envFrom": [{"secretRef": {"name": "s"}}]}, {}, "SecretsUnsupported", "secret"),
        (
            {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
            {},
            "SecretsUnsupported",
            "secret",
        ),
        (
            {"securityContext": {"runAsUser": os.geteuid() + 1}},
            {},
            "UserUnsupported",
            f"runAsUser {os.geteuid() + 1} is not supported",
        ),
        (
            {},
            {"securityContext": {"runAsUser": os.geteuid() + 1}},
            "UserUnsupported",
            f"agent's user {os.geteuid()}",
        ),
        ({}, {"resourceClaims": [{"name": "gpu"}]}, "ResourceClaimsUnsupported", "resourceClaims"),
    ],
)
def test_unsupported_fields_are_refused(container, spec, reason, words):
    refusal = planned(container, **spec).refusal
    assert refusal.reason == reason
    assert words in refusal.message


def test_the_agents_own_user_is_accepted():
    own = {"runAsUser": os.geteuid()}
    other = {"runAsUser": os.geteuid() + 1}
    assert planned({"securityContext": own}, securityContext=other).refusal is None


def test_run_as_non_root_is_refused_only_when_the_agent_is_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert planned(securityContext={"runAsNonRoot": True}).refusal.reason == "UserUnsupported"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert planned(securityContext={"runAsNonRoot": True}).refusal is None


BROKEN = {
    "readOnlyRootFilesystem true": {"readOnlyRootFilesystem": True},
    "allowPrivilegeEscalation false": {"allowPrivilegeEscalation": False},
    "capabilities.drop ALL": {"capabilities": {"drop": ["ALL"]}},
    "seccompProfile RuntimeDefault": {"seccompProfile": {"type": "RuntimeDefault"}},
    "appArmorProfile Localhost": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "x"}},
    "seLinuxOptions": {"seLinuxOptions": {"level": "s0"}},
}
KEPT = {
    "readOnlyRootFilesystem": False,
    "allowPrivilegeEscalation": True,
    "privileged": True,
    "procMount": "Unmasked",
    "capabilities": {"add": ["SYS_NICE"]},
    "seccompProfile": {"type": "Unconfined"},
    "appArmorProfile": {"type": "Unconfined"},
    "runAsUser": 0,
    "runAsGroup": 0,
    "runAsNonRoot": False,
}


@pytest.fixture
def as_root(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "getegid", lambda: 0)


@pytest.mark.parametrize("text", BROKEN)
def test_a_restriction_that_does_not_hold_for_local_processes_is_refused_by_name(as_root, text):
    found = planned({"securityContext": BROKEN[text]})
    assert found.refusal.reason == "SecurityContextUnsupported"
    assert f"container c: securityContext {text}: not enforced" in found.refusal.message


def test_all_restrictions_that_do_not_hold_are_named_at_once(as_root):
    context = {field: value for one in BROKEN.values() for field, value in one.items()}
    assert planned({"securityContext": context}).refusal.message.startswith(
        f"container c: securityContext {', '.join(BROKEN)}: not enforced for local processes"
    )


def test_restrictions_of_the_pod_hold_for_its_containers_unless_these_have_their_own(as_root):
    profile = {"seccompProfile": {"type": "RuntimeDefault"}}
    assert planned(securityContext=profile).refusal.reason == "SecurityContextUnsupported"
    own = {"securityContext": {"seccompProfile": {"type": "Unconfined"}, "runAsNonRoot": False}}
    assert planned(own, securityContext={**profile, "runAsNonRoot": True}).refusal is None


@pytest.mark.parametrize(
    ("spec", "reason", "text"),
    [
        ({"runtimeClassName": "gvisor"}, "RuntimeClassUnsupported", "gvisor"),
        ({"hostUsers": False}, "UserUnsupported", "hostUsers false"),
        ({"securityContext": {"sysctls": [{"name": "a.b", "value": "1"}]}}, "SysctlsUnsupported", "a.b"),
        ({"securityContext": {"runAsGroup": 2000}}, "UserUnsupported", "runAsGroup 2000"),
    ],
)
def test_isolation_of_a_pod_that_local_processes_lack_is_refused(as_root, spec, reason, text):
    found = planned(**spec)
    assert found.refusal.reason == reason
    assert text in found.refusal.message


def test_what_local_processes_have_anyway_is_neither_refused_nor_a_warning(as_root):
    host = {"hostPID": True, "hostIPC": True, "hostNetwork": True, "hostUsers": True}
    found = planned({"securityContext": KEPT}, **host, shareProcessNamespace=True)
    assert (found.refusal, found.warnings) == (None, ())


def test_permissions_without_effect_are_one_warning(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    own = {"privileged": True, "capabilities": {"add": ["SYS_NICE"], "drop": ["ALL"]}}
    (warning,) = planned(
        {"securityContext": own}, securityContext={"fsGroup": 2000, "supplementalGroups": [3000]}
    ).warnings
    assert warning.reason == "SecurityContextIgnored"
    fields = "supplementalGroups, fsGroup, privileged, capabilities.add SYS_NICE"
    assert warning.message.startswith(f"securityContext {fields} ignored")


def test_the_service_account_mount_is_accepted():
    mount = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}
    assert planned({"volumeMounts": [mount]}).refusal is None


def test_ignored_fields_are_warnings():
    found = planned(
        {"image": "nginx", "livenessProbe": {"exec": {}}, "lifecycle": {"preStop": {}}},
        ephemeralContainers=[{"name": "debug"}],
    )
    assert found.refusal is None
    assert [warning.reason for warning in found.warnings] == [
        "ImageIgnored",
        "ProbesIgnored",
        "HooksIgnored",
        "EphemeralContainersIgnored",
    ]
    assert "containers c" in found.warnings[1].message


@pytest.mark.parametrize(
    ("container", "spec"),
    [
        ({"resources": {"limits": {"memory": "64Mi"}}}, {}),
        ({}, {"resources": {"limits": {"memory": "64Mi"}}}),
    ],
    ids=["container", "pod"],
)
def test_memory_limits_that_are_not_enforced_are_a_warning(container, spec):
    limited = pod(container, **spec)
    (warning,) = pod_manifest.pod_plan(limited, processes=True, limits_memory=False).warnings
    assert warning.reason == "MemoryLimitsIgnored"
    assert "corelane.io/notice" in warning.message
    assert pod_manifest.pod_plan(limited, processes=True).warnings == ()
    assert pod_manifest.pod_plan(pod(), processes=True, limits_memory=False).warnings == ()


def test_a_simulated_node_accepts_fields_unsupported_by_processes():
    found = planned({"command": [], "image": "nginx"}, processes=False)
    assert (found.refusal, found.warnings) == (None, ())


def test_an_invalid_annotation_is_refused_by_name():
    found = planned(metadata={"annotations": {"corelane.io/container-cpusets": "no json"}})
    assert found.refusal.reason == "UnexpectedAdmissionError"
    assert "corelane.io/container-cpusets" in found.refusal.message
    assert found.key == "default/web"


def test_an_invalid_annotation_keeps_the_containers_requests():
    resources = {"requests": {"cpu": "200m"}}
    broken = planned({"resources": resources}, metadata={"annotations": {RESOURCE_STATUS: "{"}})
    assert broken.refusal is not None
    assert broken.request == planned({"resources": resources}).request


def test_only_a_pod_with_pod_scheduled_counts_as_bound_by_corelane():
    scheduled = {"conditions": [{"type": "PodScheduled", "status": "True"}]}
    assert planned(schedulerName=bound_pods.SCHEDULER, status=scheduled).bound_by_corelane
    assert not planned(schedulerName=bound_pods.SCHEDULER).bound_by_corelane
    assert not planned(schedulerName="default-scheduler", status=scheduled).bound_by_corelane


def test_a_deleted_pod_has_its_grace_period():
    gone = {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": 5}
    assert planned(metadata=gone).deletion_grace == 5.0
    assert planned().deletion_grace is None


def test_past_runs_come_from_the_pods_status():
    terminated = {
        "exitCode": 3,
        "reason": "Error",
        "startedAt": "2026-01-01T00:00:00Z",
        "finishedAt": "2026-01-01T00:00:05Z",
    }
    status = {
        "containerStatuses": [
            {
                "name": "crashed",
                "restartCount": 2,
                "state": {"waiting": {}},
                "lastState": {"terminated": terminated},
            },
            {"name": "ran", "restartCount": 1, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}},
            {"name": "new", "restartCount": 0, "state": {"waiting": {}}},
        ]
    }
    past = planned(status=status).past
    assert past.keys() == {"crashed", "ran"}
    assert (past["crashed"].restarts, past["crashed"].ended.exit_code) == (2, 3)
    assert past["crashed"].ended.finished_at - past["crashed"].ended.started_at == 5.0
    assert past["ran"].ended is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("", 0.0), ("1970-01-01T00:00:10Z", 10.0), ("1970-01-01T00:00:10.5Z", 10.5), ("x", 0.0)],
)
def test_timestamps(text, expected):
    assert bound_pods.seconds(text) == expected


RUNNING = {"running": {"startedAt": "2026-01-01T00:00:01Z"}}
STATUSES = (
    {},
    {"phase": "Pending", "startTime": "2026-01-01T00:00:00Z"},
    {"phase": "Running", "containerStatuses": [{"name": "c", "restartCount": 1, "state": RUNNING}]},
    {"phase": "Succeeded"},
    {"phase": "Failed", "reason": "Evicted"},
    {"qosClass": "Guaranteed"},
    {"conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:01Z"}]},
    {"conditions": [{"type": "PodScheduled", "status": "True"}]},
    {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]},
)
METADATA = (
    {},
    {"resourceVersion": "7"},
    {"uid": "other"},
    {"labels": {"a": "b"}},
    {"annotations": {RESOURCE_STATUS: "damaged"}},
    {"deletionTimestamp": "2026-01-01T00:00:02Z", "deletionGracePeriodSeconds": 3},
)
SPECS = (
    {},
    {"activeDeadlineSeconds": 9},
    {"schedulerName": "corelane-scheduler"},
    {"terminationGracePeriodSeconds": 1},
    {"restartPolicy": "Never"},
)
STATES = st.builds(
    lambda status, metadata, spec: pod(None, metadata, status, **spec),
    st.sampled_from(STATUSES),
    st.sampled_from(METADATA),
    st.sampled_from(SPECS),
)


def of_spec(state, processes):
    plan = pod_manifest.pod_plan(state, processes=processes)
    return replace(plan, past={}, conditions={}, started_at=None)


@given(STATES, STATES, st.booleans())
def test_pods_with_alike_plans_differ_in_their_past_at_most(old, new, processes):
    if pod_manifest.plans_alike(old, new):
        assert of_spec(old, processes) == of_spec(new, processes)


def test_a_status_that_the_node_published_is_nothing_new():
    for status in (STATUSES[1], STATUSES[2], STATUSES[6]):
        assert pod_manifest.plans_alike(pod(), pod(None, {"resourceVersion": "9"}, status))
