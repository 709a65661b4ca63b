"""What kubectl prints of each kind."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from corelane.embedded.apiserver.codec.server_tables import human_duration, to_table

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
POD = SimpleNamespace(group="", kind="Pod")


def cells(group, kind, item):
    table = to_table(SimpleNamespace(group=group, kind=kind), [item], {}, now=NOW)
    assert len(table["columnDefinitions"]) == len(table["rows"][0]["cells"])
    return table["rows"][0]["cells"]


def meta(**more):
    return {"name": "x", "creationTimestamp": "2026-03-02T11:55:30Z", **more}


def pod(status=None, metadata=None, **spec):
    spec = {"containers": [{"name": "a"}], **spec}
    return cells("", "Pod", {"metadata": meta(**(metadata or {})), "spec": spec, "status": status or {}})


def container(name="a", *, ready=False, restarts=0, ended=None, started=None, **state):
    last = {"terminated": {"finishedAt": ended}} if ended else {}
    return {
        "name": name,
        "ready": ready,
        "restartCount": restarts,
        "lastState": last,
        "state": state,
        "started": started,
    }


RUNNING = {"startedAt": "2026-03-02T11:56:00Z"}
SIDECAR = {"name": "s", "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (270, "4m30s"), (599, "9m59s"),
        (600, "10m"), (3 * 3600 - 1, "179m"), (3 * 3600, "3h"), (7 * 3600 + 1800, "7h30m"), (8 * 3600, "8h"),
        (47 * 3600, "47h"), (48 * 3600, "2d"), (50 * 3600, "2d2h"), (191 * 3600, "7d23h"), (192 * 3600, "8d"),
        (729 * 86400, "729d"), (730 * 86400, "2y"), (800 * 86400, "2y70d"), (9 * 365 * 86400, "9y"),
    ],
)  # fmt: skip
def test_an_age_has_at_most_two_units(seconds, text):
    assert human_duration(timedelta(seconds=seconds)) == text


def test_a_new_pod_is_pending_with_nothing_ready():
    assert pod({"phase": "Pending"}) == ["x", "0/1", "Pending", "0", "4m30s", *["<none>"] * 4]


def test_a_running_pod_shows_address_node_and_when_it_last_restarted():
    status = {"phase": "Running", "podIPs": [{"ip": "192.0.2.7"}], "nominatedNodeName": "n2"}
    status["containerStatuses"] = [
        container(ready=True, restarts=2, running=RUNNING, ended="2026-03-02T11:59:00Z")
    ]
    expected = ["x", "1/1", "Running", "2 (60s ago)", "4m30s", "192.0.2.7", "n1", "n2", "<none>"]
    assert pod(status, nodeName="n1") == expected


@pytest.mark.parametrize(
    ("state", "word"),
    [
        ({"waiting": {"reason": "CrashLoopBackOff"}}, "CrashLoopBackOff"),
        ({"waiting": {}}, "Running"),
        ({"terminated": {"exitCode": 3}}, "ExitCode:3"),
        ({"terminated": {"exitCode": 0}}, "ExitCode:0"),
        ({"terminated": {"exitCode": 137, "signal": 9}}, "Signal:9"),
        ({"terminated": {"exitCode": 1, "reason": "OOMKilled"}}, "OOMKilled"),
        ({"terminated": {"exitCode": 0, "reason": "Completed"}}, "Completed"),
    ],
)
def test_a_containers_trouble_shows_as_the_pods_status(state, word):
    assert pod({"phase": "Running", "containerStatuses": [container(**state)]})[1:3] == ["0/1", word]


@pytest.mark.parametrize(("ready", "word"), [("True", "Running"), ("False", "NotReady")])
def test_one_completed_container_of_two_does_not_make_the_pod_completed(ready, word):
    done = container("b", terminated={"exitCode": 0, "reason": "Completed"})
    status = {"phase": "Running", "containerStatuses": [container(ready=True, running=RUNNING), done]}
    status["conditions"] = [{"type": "Ready", "status": ready}]
    assert pod(status, containers=[{"name": "a"}, {"name": "b"}])[1:3] == ["1/2", word]


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Running"}, "Terminating"),
        ({"phase": "Succeeded"}, "Succeeded"),
        ({"phase": "Running", "reason": "NodeLost"}, "Unknown"),
    ],
)
def test_a_pod_being_deleted_is_terminating_unless_it_has_ended_or_its_node_is_lost(status, word):
    assert pod(status, {"deletionTimestamp": "2026-03-02T11:59:00Z"})[2] == word


def test_the_pods_own_reason_shows_and_a_scheduling_gate_goes_before_it():
    gated = [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    assert pod({"phase": "Failed", "reason": "Evicted"})[2] == "Evicted"
    assert pod({"phase": "Pending", "conditions": gated})[2] == "SchedulingGated"


@pytest.mark.parametrize(
    ("states", "word"),
    [
        ([{"running": RUNNING}, {}], "Init:0/2"),
        ([{"terminated": {"exitCode": 0}}, {"waiting": {"reason": "PodInitializing"}}], "Init:1/2"),
        ([{"waiting": {"reason": "ErrImagePull"}}, {}], "Init:ErrImagePull"),
        ([{"terminated": {"exitCode": 2}}, {}], "Init:ExitCode:2"),
        ([{"terminated": {"exitCode": 2, "signal": 15}}, {}], "Init:Signal:15"),
        ([{"terminated": {"exitCode": 2, "reason": "Error"}}, {}], "Init:Error"),
    ],
)
def test_the_init_container_that_holds_the_pod_up_shows(states, word):
    statuses = [container(f"i{n}", restarts=n + 1, **state) for n, state in enumerate(states)]
    inits = [{"name": "i0"}, {"name": "i1"}]
    waiting = [container(waiting={"reason": "PodInitializing"})]
    row = pod(
        {"phase": "Pending", "initContainerStatuses": statuses, "containerStatuses": waiting},
        initContainers=inits,
    )
    assert row[1:3] == ["0/1", word]
    assert row[3] == ("3" if word == "Init:1/2" else "1")


def test_sidecars_count_as_containers_and_other_init_containers_restarts_do_not():
    inits = [
        container("i", restarts=4, terminated={"exitCode": 0}),
        container("s", ready=True, started=True, restarts=1, running=RUNNING),
    ]
    status = {"phase": "Running", "initContainerStatuses": inits}
    status["containerStatuses"] = [container(ready=True, restarts=2, running=RUNNING)]
    assert pod(status, initContainers=[{"name": "i"}, SIDECAR])[1:4] == ["2/2", "Running", "3"]


def test_readiness_gates_count_those_that_are_true():
    gates = [{"conditionType": "a"}, {"conditionType": "b"}]
    status = {"conditions": [{"type": "a", "status": "True"}, {"type": "b", "status": "False"}]}
    assert pod(status, readinessGates=gates)[-1] == "1/2"


def test_rows_of_ended_pods_say_so_in_a_condition():
    ended = {"metadata": meta(), "status": {"phase": "Succeeded"}}
    alive = {"metadata": meta(), "status": {"phase": "Running"}}
    rows = to_table(POD, [ended, alive], {}, now=NOW)["rows"]
    assert rows[0]["conditions"][0]["type"] == "Completed"
    assert "conditions" not in rows[1]


def test_a_node_shows_readiness_roles_addresses_and_system():
    node = {
        "metadata": meta(labels={"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "gpu"}),
        "spec": {"unschedulable": True},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "addresses": [{"type": "InternalIP", "address": "192.0.2.8"}],
            "nodeInfo": {"kubeletVersion": "v1", "osImage": "os", "kernelVersion": "6"},
        },
    }
    expected = [
        "x",
        "Ready,SchedulingDisabled",
        "gpu,worker",
        "4m30s",
        "v1",
        "192.0.2.8",
        "<none>",
        "os",
        "6",
    ]
    assert cells("", "Node", node) == [*expected, "<unknown>"]
    bare = ["x", "Unknown", "<none>", "4m30s", "", "<none>", "<none>", *["<unknown>"] * 3]
    assert cells("", "Node", {"metadata": meta()}) == bare
    sick = {"metadata": meta(), "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}
    assert cells("", "Node", sick)[1] == "NotReady"


def test_the_small_kinds_show_what_matters_of_them():
    assert cells("", "Namespace", {"metadata": meta(), "status": {"phase": "Active"}}) == [
        "x",
        "Active",
        "4m30s",
    ]
    both = {"metadata": meta(), "data": {"a": "1"}, "binaryData": {"b": "MQ=="}}
    assert cells("", "ConfigMap", both) == ["x", 2, "4m30s"]
    assert cells("coordination.k8s.io", "Lease", {"metadata": meta()}) == ["x", "", "4m30s"]
    item = {"metadata": meta(), "value": 10, "preemptionPolicy": "Never"}
    assert cells("scheduling.k8s.io", "PriorityClass", item) == ["x", 10, False, "4m30s", "Never"]
    assert cells("topology.node.k8s.io", "NodeResourceTopology", {"metadata": {"name": "x"}}) == [
        "x",
        "<unknown>",
    ]


def test_an_event_shows_its_last_time_object_and_source_in_both_versions():
    core = {
        "metadata": meta(),
        "type": "Warning",
        "reason": "Failed",
        "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec"},
        "message": " why\n",
        "source": {"component": "c", "host": "h"},
        "firstTimestamp": "2026-03-02T11:00:00Z",
        "lastTimestamp": "2026-03-02T11:59:50Z",
        "count": 3,
    }
    expected = ["10s", "Warning", "Failed", "pod/p", "spec", "c, h", "why", "60m", 3, "x"]
    assert cells("", "Event", core) == expected
    new = {
        "metadata": meta(),
        "type": "Normal",
        "regarding": {"kind": "Node"},
        "note": "n",
        "eventTime": "2026-03-02T11:00:00.000001Z",
        "reportingController": "r",
        "series": {"count": 7, "lastObservedTime": "2026-03-02T11:59:50.5Z"},
    }
    expected = ["9s", "Normal", "", "node", "", "r", "n", "59m", 7, "x"]
    assert cells("events.k8s.io", "Event", new) == expected
    assert cells("", "Event", {"metadata": meta()})[0] == "<unknown>"
