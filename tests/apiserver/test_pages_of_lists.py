"""Pages of a list, however it was changed meanwhile, are what the whole list was at its revision."""

from unittest import mock

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.apiserver import served_kinds
from corelane.apiserver.codec import wire
from corelane.apiserver.store.database import Store
from corelane.apiserver.stored_objects import StoredObject

KEYS = st.sampled_from([f"{space}/{name}" for space in ("a", "a-b", "b") for name in "uvwxyz"])
STEPS = st.lists(st.tuples(KEYS, st.booleans()), max_size=12)


def change(store, steps):
    for key, put in steps:
        if put:
            store.put("things", key, {"metadata": {"name": key}})
        elif store.get("things", key):
            store.delete("things", key)


@settings(max_examples=150, deadline=None)
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


@given(st.lists(_ANY_POD, max_size=3))
def test_a_table_of_pods_read_in_part_is_that_of_whole_pods(pods):
    view = wire.View(served_kinds.PODS, "v1", wire.Representation(form="Table"))
    values = [msgspec.json.encode({"kind": "Pod", "apiVersion": "v1", **pod}) for pod in pods]
    records = [StoredObject(str(number), number, value, {}, {}) for number, value in enumerate(values)]
    quick = msgspec.json.decode(wire.many(view, records, {"resourceVersion": "7"}))
    with mock.patch.object(wire, "_pod_table", lambda *_: None):
        assert quick == msgspec.json.decode(wire.many(view, records, {"resourceVersion": "7"}))
