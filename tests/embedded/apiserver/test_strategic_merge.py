"""Strategic merge patch: lists merge by the keys of the tables, directives do what upstream's do."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.schema.notation import ObjectType
from corelane.embedded.apiserver.served_kinds import KINDS, PODS
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.write import patching, strategic_merge
from corelane.embedded.apiserver.write.patching import STRATEGIC_PATCH
from corelane.embedded.apiserver.write.strategic_merge import StrategicError
from support.drawn import objects

POD = PODS.schema["v1"]
BUILT_IN = [kind for kind in KINDS if not kind.custom]


def pod(**fields):
    return {"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b", "image": "2"}], **fields}}


def merge(original, change):
    return strategic_merge.merge(POD, original, copy.deepcopy(change))


def difference(shape, old, new):
    """The patch that makes `new` of `old`, as kubectl would compute it: with order and deletions."""
    change = {}
    for name in old.keys() | new.keys():
        row = shape.fields.get(name) if isinstance(shape, ObjectType) else None
        inner = row.shape if row else getattr(shape, "value", None)
        if name not in new:
            change[name] = None
        elif name not in old:
            change[name] = new[name]
        elif old[name] != new[name]:
            change |= changed(name, row, inner, old[name], new[name])
    return change


def changed(name, row, shape, old, new):
    if isinstance(old, dict) and isinstance(new, dict):
        if row is not None and "replace" in row.strategy:
            return {name: new}
        return {name: difference(shape, old, new)}
    if isinstance(old, list) and isinstance(new, list) and row is not None and row.merges:
        return merged_list(name, row, old, new)
    return {name: new}


def merged_list(name, row, old, new):
    if not row.merge:
        gone = [item for item in old if item not in new]
        change = {name: [item for item in new if item not in old], f"$setElementOrder/{name}": new}
        return change | ({f"$deleteFromPrimitiveList/{name}": gone} if gone else {})
    key, before = row.merge, {item[row.merge]: item for item in old}
    after = {item[key]: item for item in new}
    items = [
        {**difference(row.shape.item, before.get(value, {}), item), key: value}
        for value, item in after.items()
        if before.get(value) != item
    ]
    items += [{"$patch": "delete", key: value} for value in before if value not in after]
    return {name: items, f"$setElementOrder/{name}": [{key: value} for value in after]}


def without_empty(value):
    if isinstance(value, dict):
        kept = {name: without_empty(inner) for name, inner in value.items()}
        return {name: inner for name, inner in kept.items() if inner not in (None, [], {})}
    if isinstance(value, list):
        return [inner for inner in map(without_empty, value) if inner not in (None, [], {})]
    return value


@settings(max_examples=40)
@given(st.data())
def test_the_difference_of_two_objects_leads_from_one_to_the_other(data):
    kind = data.draw(st.sampled_from(BUILT_IN))
    likely = ("spec", "containers", "name", "env", "volumes", "tolerations", "ports", "conditions", "type")
    old, new = (
        without_empty(data.draw(objects(kind.schema["v1"], unique=True, likely=likely))) for _ in range(2)
    )
    before = copy.deepcopy(old)
    change = difference(kind.schema["v1"], old, new)
    result = strategic_merge.merge(kind.schema["v1"], old, json.loads(json.dumps(change)))
    assert without_empty(result) == new
    assert strategic_merge.merge(kind.schema["v1"], old, {}) == old == before


@settings(max_examples=40)
@given(st.data())
def test_whatever_the_patch_it_merges_or_is_refused(data):
    kind = data.draw(st.sampled_from(BUILT_IN))
    record = kind.schema["v1"]
    likely = ("spec", "containers", "env", "metadata", "finalizers")
    original = data.draw(objects(record, likely=likely))
    change = spoiled(data.draw, data.draw(objects(record, likely=likely)))
    before = copy.deepcopy(original)
    try:
        result = strategic_merge.merge(record, original, copy.deepcopy(change))
    except StrategicError as error:
        assert error.code in {400, 422, 500}
        assert str(error)
    else:
        json.dumps(result)
    assert original == before


def spoiled(draw, value):
    """A patch with some directives and some values of the wrong type in it."""
    if isinstance(value, list):
        return [spoiled(draw, inner) for inner in value]
    if not isinstance(value, dict):
        return draw(st.sampled_from([value, value, value, None, [], {}, [[1]]]))
    made = {name: spoiled(draw, inner) for name, inner in value.items()}
    for name in list(made):
        if draw(st.integers(0, 4)) == 0:
            prefix = draw(
                st.sampled_from(["$setElementOrder/", "$deleteFromPrimitiveList/", "$patch", "$retainKeys"])
            )
            directive = prefix + name if prefix.endswith("/") else prefix
            made[directive] = draw(
                st.sampled_from([[], [{"name": "a"}], ["a"], "delete", "replace", "x", [name]])
            )
    return made


def test_an_order_that_is_asked_for_is_kept():
    order = [{"name": "b"}, {"name": "a"}]
    names = [
        one["name"]
        for one in merge(pod(), {"spec": {"$setElementOrder/containers": order}})["spec"]["containers"]
    ]
    assert names == ["b", "a"]
    wrong = {"spec": {"$setElementOrder/containers": order, "containers": [{"name": "a"}, {"name": "b"}]}}
    with pytest.raises(StrategicError, match=r"\$setElementOrder"):
        merge(pod(), wrong)


def test_items_and_objects_are_deleted_and_replaced_on_demand():
    delete = {"spec": {"containers": [{"$patch": "delete", "name": "a"}]}}
    assert merge(pod(), delete)["spec"]["containers"] == [{"name": "b", "image": "2"}]
    replace = {"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}
    assert merge(pod(), replace)["spec"]["containers"] == [{"name": "z"}]
    whole = {"spec": {"$patch": "replace", "nodeName": "n"}}
    assert merge(pod(), whole) == {"spec": {"nodeName": "n"}}
    assert merge(
        pod(securityContext={"runAsUser": 1}), {"spec": {"securityContext": {"$patch": "delete"}}}
    ) == pod(securityContext={})


def test_only_the_keys_to_retain_are_retained():
    old = pod(volumes=[{"name": "v", "emptyDir": {}}])
    change = {"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/a"}}
    assert merge(old, {"spec": {"volumes": [change]}})["spec"]["volumes"] == [
        {"name": "v", "hostPath": {"path": "/a"}}
    ]
    change["$retainKeys"] = ["name"]
    with pytest.raises(StrategicError, match="retainKeys") as refused:
        merge(old, {"spec": {"volumes": [change]}})
    assert refused.value.code == 400


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"spec": {"containers": [{"image": "x"}]}}, 500),
        ({"spec": {"containers": ["a"]}}, 500),
        ({"spec": {"containers": [["a"]]}}, 500),
        ({"spec": {"$patch": "burn"}}, 500),
        ({"spec": {"containers": [{"$patch": "burn", "name": "a"}]}}, 500),
        ({"spec": {"containers": [{"$patch": "delete"}]}}, 500),
        ({"spec": {"$setElementOrder/containers": 1}}, 400),
        ({"spec": {"$setElementOrder/nodeName": []}}, 400),
        ({"spec": {"$retainKeys": 1}}, 400),
    ],
)
def test_a_patch_that_makes_no_sense_is_refused(change, code):
    with pytest.raises(StrategicError) as refused:
        merge(pod(), change)
    assert refused.value.code == code
    current, _ = request_bodies.decode(PODS, "v1", json.dumps(pod()).encode())
    with pytest.raises(StatusError) as answered:
        patching.apply(PODS, STRATEGIC_PATCH, current, json.dumps(change).encode())
    assert answered.value.code == code


def test_long_lists_are_merged_in_little_time():
    env = [{"name": f"A{number}", "value": "x"} for number in range(20_000)]
    half = [{"name": f"A{number}", "value": "y"} for number in range(0, 20_000, 2)]
    old = {"spec": {"containers": [{"name": "c", "env": env}]}}
    result = merge(old, {"spec": {"containers": [{"name": "c", "env": half}]}})
    values = [one["value"] for one in result["spec"]["containers"][0]["env"]]
    assert (values.count("x"), values.count("y")) == (10_000, 10_000)
