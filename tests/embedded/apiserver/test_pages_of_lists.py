"""Pages of a list, however it was changed meanwhile, are what the whole list was at its revision."""

from datetime import UTC, datetime
from unittest import mock

import msgspec
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.stored_objects import StoredObject

KEYS = st.sampled_from([f"{space}/{name}" for space in ("a", "a-b", "b") for name in "uvwxyz"])
STEPS = st.lists(st.tuples(KEYS, st.booleans()), max_size=12)


def change(store, steps):
    for key, put in steps:
        if put:
            store.put("things", key, {"metadata": {"name": key}})
        elif store.get("things", key):
            store.delete("things", key)


@settings(max_examples=80, deadline=None)
@given(STEPS, STEPS, STEPS, st.sampled_from(["", "a/", "b/"]), st.integers(1, 4))
def test_pages_at_a_revision_are_the_list_as_it_was(before, between, later, prefix, size):
    store = Store(None, lambda *_: {}, 10_000)
    change(store, before)
    revision = store.revision
    expected = [(one.key, one.revision) for one in store.find("things", prefix)]
    change(store, between)
    pages, start = [], ""
    while True:
        found = store.range("things", prefix, revision, start)
        assert len(found) == len(expected) - len(pages)
        pages += [(one.key, one.revision) for one in found[:size]]
        if len(found) <= size:
            break
        start = found[size - 1].key[len(prefix) :] + "\0"
        change(store, later)
    assert pages == expected


_TEXT = st.sampled_from(["", "a", "Ready", "Running", "Completed", "True", "Always", "2026-03-02T11:55:30Z"])
_TERMINATED = st.fixed_dictionaries(
    {},
    optional={
        "reason": _TEXT,
        "signal": st.integers(0, 9),
        "exitCode": st.integers(0, 2),
        "finishedAt": st.none() | _TEXT,
    },
)
_STATE = st.fixed_dictionaries(
    {},
    optional={
        "waiting": st.fixed_dictionaries({}, optional={"reason": _TEXT, "message": _TEXT}),
        "running": st.fixed_dictionaries({"startedAt": st.none() | _TEXT}),
        "terminated": _TERMINATED,
    },
)
_STATUSES = st.lists(
    st.fixed_dictionaries(
        {"name": _TEXT, "ready": st.booleans(), "restartCount": st.integers(0, 3)},
        optional={"state": _STATE, "lastState": _STATE, "started": st.booleans() | st.none(), "image": _TEXT},
    ),
    max_size=2,
)
_ANY_POD = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries(
            {"name": _TEXT, "creationTimestamp": _TEXT, "labels": st.dictionaries(_TEXT, _TEXT, max_size=2)},
            optional={"deletionTimestamp": _TEXT},
        ),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(st.fixed_dictionaries({"name": _TEXT, "image": _TEXT}), max_size=2)},
            optional={
                "initContainers": st.lists(
                    st.fixed_dictionaries({"name": _TEXT, "restartPolicy": _TEXT}), max_size=2
                ),
                "readinessGates": st.lists(st.fixed_dictionaries({"conditionType": _TEXT}), max_size=2),
                "nodeName": _TEXT,
            },
        ),
        "status": st.fixed_dictionaries(
            {"phase": st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])},
            optional={
                "reason": st.sampled_from(["NodeLost", "Evicted", 7]),
                "conditions": st.lists(st.fixed_dictionaries({"type": _TEXT, "status": _TEXT}), max_size=2),
                "initContainerStatuses": _STATUSES,
                "containerStatuses": _STATUSES,
                "podIPs": st.lists(st.fixed_dictionaries({"ip": _TEXT}), max_size=1),
            },
        ),
    }
)


_RUNS = st.fixed_dictionaries(
    {
        "name": _TEXT,
        "ready": st.just(True),
        "restartCount": st.integers(0, 3),
        "state": st.just({"running": {"startedAt": "2026-03-02T11:55:30Z"}}),
    },
    optional={"lastState": st.just({}) | _STATE, "started": st.booleans()},
)
_LIVE_POD = st.fixed_dictionaries(
    {
        "metadata": st.fixed_dictionaries({"name": _TEXT, "creationTimestamp": _TEXT}),
        "spec": st.fixed_dictionaries(
            {"containers": st.lists(st.fixed_dictionaries({"name": _TEXT}), max_size=2)},
            optional={"nodeName": _TEXT, "initContainers": st.just([])},
        ),
        "status": st.fixed_dictionaries(
            {"phase": st.sampled_from(["Pending", "Running"])},
            optional={
                "conditions": st.lists(
                    st.fixed_dictionaries(
                        {"type": st.sampled_from(["PodScheduled", "Ready"])},
                        optional={"reason": st.sampled_from(["SchedulingGated", "Unschedulable"])},
                    ),
                    max_size=2,
                ),
                "containerStatuses": st.lists(_RUNS, max_size=2),
                "nominatedNodeName": _TEXT,
                "podIPs": st.lists(st.fixed_dictionaries({}, optional={"ip": _TEXT}), max_size=1),
            },
        ),
    }
)
_PLAIN = {
    "metadata": {"name": "p", "creationTimestamp": "2026-03-02T11:55:30Z"},
    "spec": {"containers": [{"name": "c"}], "nodeName": "n"},
    "status": {
        "phase": "Running",
        "podIPs": [{"ip": "127.0.0.1"}],
        "containerStatuses": [
            {"name": "c", "ready": True, "restartCount": 2, "state": {"running": {"startedAt": "a"}}}
        ],
    },
}
_RESTARTED = {"name": "c", "ready": True, "restartCount": 1, "state": {"running": {}}}
_ENDED = {"terminated": {"exitCode": 1, "finishedAt": "2026-03-02T11:55:30Z"}}


def _status(**values):
    return {**_PLAIN, "status": {**_PLAIN["status"], **values}}


@given(st.lists(_ANY_POD | _LIVE_POD, max_size=3))
@example([_PLAIN, {**_PLAIN, "metadata": {"name": "p", "deletionTimestamp": "2026-03-02T11:55:30Z"}}])
@example([_status(containerStatuses=[{**_RESTARTED, "lastState": _ENDED}])])
@example([_status(containerStatuses=[{**_RESTARTED, "ready": False}]), _status(reason="Evicted")])
@example([_status(conditions=[{"type": "PodScheduled", "reason": "SchedulingGated"}], phase="Pending")])
@example([_status(phase="Succeeded"), _status(phase="Failed"), _status(podIPs=[{"ip": None}])])
def test_a_table_of_pods_read_in_part_is_that_of_whole_pods(pods):
    view = wire.View(served_kinds.PODS, "v1", wire.Representation(form="Table"))
    values = [msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", **pod}) for pod in pods]
    records = [StoredObject(str(number), number, value, {}, {}) for number, value in enumerate(values)]
    quick = msgspec.json.decode(wire.list_bytes(view, records, {"resourceVersion": "7"}))
    with mock.patch.object(wire, "_ordinary_row", lambda *_: None):
        assert quick == msgspec.json.decode(wire.list_bytes(view, records, {"resourceVersion": "7"}))


def test_a_pod_whose_containers_run_is_not_decoded_further():
    record = StoredObject("p", 1, msgspec.json.encode({"kind": "Pod", **_PLAIN}), {}, {})
    with mock.patch.object(wire.server_tables, "row", None):
        (row,) = wire.rows([record], "v1", datetime(2026, 3, 2, 11, 57, tzinfo=UTC))
    assert row["cells"] == ["p", "1/1", "Running", "2", "90s", "127.0.0.1", "n", "<none>", "<none>"]
