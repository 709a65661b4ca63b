"""Managed fields and merges, at the level of values: what recorded answers do not reach."""

import pytest

from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.ownership import applying, managed_fields, merging, typed_values
from corelane.embedded.apiserver.ownership.applying import Applier, ApplyConflictError
from corelane.embedded.apiserver.ownership.managed_fields import APPLY, UPDATE, Manager, Owned, Resource
from corelane.embedded.apiserver.ownership.typed_values import TypedValueError

POD = Resource(served_kinds.PODS, "v1")
CONFIG = Resource(served_kinds.CONFIG_MAPS, "v1")
NOW = "2026-01-01T00:00:00Z"


def pod(*containers, **spec):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {},
        "spec": {"containers": list(containers), **spec},
    }


def names(obj):
    return [container["name"] for container in obj["spec"]["containers"]]


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        ("abc", "", "abc"),
        ("abc", "b", "abc"),
        ("abc", "ca", "bca"),
        ("abc", "xa", "xabc"),
        ("abc", "cx", "abcx"),
        ("", "ba", "ba"),
    ],
)
def test_merged_lists_have_shared_items_in_the_appliers_order(live, applied, merged):
    before = pod(*({"name": name} for name in live))
    after = pod(*({"name": name} for name in applied))
    assert "".join(names(merging.merge(POD.type, before, after))) == merged


def test_ports_are_known_by_number_and_protocol_whose_default_is_tcp():
    kind = POD.type.fields["spec"].fields["containers"].item.fields["ports"]
    assert typed_values.list_element(kind, {"containerPort": 80}) == (
        'k:{"containerPort":80,"protocol":"TCP"}'
    )


def test_an_atomic_map_is_one_field():
    old, new = pod(nodeSelector={"a": "1"}), pod(nodeSelector={"a": "1", "b": "2"})
    assert merging.compare(POD.type, old, new).modified == {"f:spec": {"f:nodeSelector": {}}}
    assert typed_values.fields_of(POD.type, new)["f:spec"] == {"f:nodeSelector": {}}


def test_true_and_one_are_different_values():
    assert not merging.same(True, 1)
    assert merging.same(80, 80.0)


@pytest.mark.parametrize(
    ("config", "fault"),
    [
        ({"data": {"a": 1e6}}, ".data.a: got number 1000000.0, expected string"),
        ({"data": {"a": [True, None]}}, ".data.a: got list, expected string"),
        ({"data": "x"}, '.data: got string "x", expected object'),
        ({"immutable": "x"}, '.immutable: got string "x", expected boolean'),
        ({"metadata": {"generation": "x"}}, '.metadata.generation: got string "x", expected numeric'),
        ({"metadata": {"finalizers": [{}]}}, "element 0: got object, expected scalar"),
        ({"metadata": {"finalizers": ["a", "a"]}}, '.metadata.finalizers: duplicate entries for key [="a"]'),
        ({"metadata": {"ownerReferences": [None]}}, "element 0: got null, expected object"),
        ({"data": 1, "immutable": 1}, "errors:\n  .data: got number 1, expected object\n  .immutable: got"),
    ],
)
def test_faults_name_field_value_and_type(config, fault):
    with pytest.raises(TypedValueError) as caught:
        typed_values.check(CONFIG.type, config)
    assert fault in str(caught.value)


def test_the_oldest_updates_become_one_entry():
    found = {
        managed_fields.manager(f"m{n}", UPDATE, "v1"): Owned(
            {f"f:{n}": {}}, "v1", f"2026-01-01T00:00:{n:02}Z"
        )
        for n in range(12)
    }
    applied = Manager("a", APPLY, "")
    found[applied] = Owned({"f:x": {}}, "v1", NOW)
    left = managed_fields.capped_managers(found)
    assert [who.name for who in left if who.operation == UPDATE] == [
        *(f"m{n}" for n in range(3, 12)), "ancient-changes",
    ]  # fmt: skip
    ancient = left[managed_fields.manager("ancient-changes", UPDATE, "v1")]
    assert ancient == Owned({"f:0": {}, "f:1": {}, "f:2": {}}, "v1", "2026-01-01T00:00:02Z")
    assert applied in left


def test_a_manager_of_two_operations_is_two_and_the_subresource_counts():
    entries = [
        {
            "manager": "m",
            "operation": "Update",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:a": {}},
        },
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:a": {}},
        },
        {
            "manager": "m",
            "operation": "Apply",
            "apiVersion": "v1",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:a": {}},
            "subresource": "status",
        },
    ]
    found = managed_fields.read_managers(entries)
    assert len(found) == 3
    assert sorted(managed_fields.written_entries(found), key=str) == sorted(entries, key=str)


def config(**data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def with_entries(obj, applied):
    return {
        **obj,
        "metadata": {"name": "c", "managedFields": managed_fields.written_entries(applied.managers)},
    }


def test_conflicts_of_several_managers_are_listed_by_manager():
    live = with_entries(
        config(a="1", b="1"),
        applying.apply(CONFIG, CONFIG.empty(), config(a="1"), Applier("one", False, NOW)),
    )
    second = applying.apply(CONFIG, live, config(b="1"), Applier("two", False, NOW))
    with pytest.raises(ApplyConflictError) as caught:
        applying.apply(CONFIG, with_entries(live, second), config(a="2", b="2"), Applier("me", False, NOW))
    status = caught.value.status()
    assert status.code == 409
    assert status.message == (
        'Apply failed with 2 conflicts: conflicts with "one":\n- .data.a\nconflicts with "two":\n- .data.b'
    )
    assert [cause["field"] for cause in status.details["causes"]] == [".data.a", ".data.b"]


def test_what_admission_and_the_server_set_is_owned_by_no_manager():
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "uid": "u"}}
    assert managed_fields.created(CONFIG, obj, "me", NOW) == []


def test_a_write_that_changes_nothing_leaves_the_entries():
    entries = managed_fields.created(CONFIG, config(a="1"), "me", NOW)
    live = {**config(a="1"), "metadata": {"name": "c", "managedFields": entries}}
    assert managed_fields.updated(CONFIG, live, config(a="1"), "other", "2027-01-01T00:00:00Z") == entries


def test_entries_that_a_client_damaged_are_the_stored_ones():
    entries = managed_fields.created(CONFIG, config(a="1"), "me", NOW)
    live = {**config(a="1"), "metadata": {"name": "c", "managedFields": entries}}
    damaged = [{**entries[0], "fieldsV1": {"x": {}}}]
    sent = {**config(a="1"), "metadata": {"name": "c", "managedFields": damaged}}
    assert managed_fields.updated(CONFIG, live, sent, "me", NOW) == entries
