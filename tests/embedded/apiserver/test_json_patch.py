"""JSON Patch (RFC 6902) and merge patch (RFC 7386), with upstream's liberties and its refusals."""

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from corelane.embedded.apiserver.served_kinds import CONFIG_MAPS, PODS, TOPOLOGIES
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.write import patching
from corelane.embedded.apiserver.write.patching import (
    JSON_PATCH,
    MAX_COPIED,
    MAX_OPERATIONS,
    MERGE_PATCH,
    STRATEGIC_PATCH,
    PatchError,
    merged,
)
from support.pod_faults import prepared

keys = st.sampled_from(["a", "b", "~", "/", "~1", "", "0", "-"])
trees = st.recursive(
    st.booleans() | st.integers(-3, 3) | st.sampled_from(["x", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=10,
)
documents = st.dictionaries(keys, trees, max_size=3)


def steps(old, new, path=""):
    """The operations that make one document of another."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old.keys() | new.keys():
            where = f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
            if name not in new:
                yield {"op": "remove", "path": where}
            elif name not in old:
                yield {"op": "add", "path": where, "value": new[name]}
            else:
                yield from steps(old[name], new[name], where)
    elif isinstance(old, list) and isinstance(new, list):
        for index, (one, other) in enumerate(zip(old, new, strict=False)):
            yield from steps(one, other, f"{path}/{index}")
        yield from ({"op": "remove", "path": f"{path}/-1"} for _ in old[len(new) :])
        yield from ({"op": "add", "path": f"{path}/-", "value": value} for value in new[len(old) :])
    elif not patching.same(old, new):
        yield {"op": "replace", "path": path, "value": new}


@settings(max_examples=50)
@given(documents, documents)
def test_the_operations_between_two_documents_lead_from_one_to_the_other(old, new):
    before = copy.deepcopy(old)
    result = patching.apply_json_patch(old, list(steps(old, new)))
    assert patching.same(result, new)
    assert old == before


@settings(max_examples=50)
@given(documents, documents)
def test_a_test_holds_for_equal_values_only(one, other):
    operation = {"op": "test", "path": "", "value": other}
    if patching.same(one, other):
        assert patching.apply_json_patch(one, [operation]) == one
    else:
        with pytest.raises(PatchError):
            patching.apply_json_patch(one, [operation])


@settings(max_examples=50)
@given(
    documents,
    st.lists(
        st.fixed_dictionaries(
            {},
            optional={
                "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "burn", None]),
                "path": st.sampled_from(["", "/", "/a", "/a/0", "/a/-", "/b/a", "/~0", "/a/-1", "a", "/a/9"]),
                "from": st.sampled_from(["", "/a", "/b/0", "/a/b"]),
                "value": trees | st.none(),
            },
        ),
        max_size=4,
    ),
)
def test_whatever_the_operations_they_apply_or_are_refused(document, operations):
    before = copy.deepcopy(document)
    try:
        result = patching.apply_json_patch(document, operations)
    except PatchError as error:
        assert str(error)
    else:
        json.dumps(result)
    assert document == before


@pytest.mark.parametrize(
    "operation",
    [
        {"op": "remove", "path": "/c"},
        {"op": "remove", "path": "/b/2"},
        {"op": "remove", "path": ""},
        {"op": "add", "path": "/b/3", "value": 1},
        {"op": "add", "path": "/b/x", "value": 1},
        {"op": "add", "path": "/a/b", "value": 1},
        {"op": "replace", "path": "", "value": 1},
        {"op": "test", "path": "/a", "value": True},
        {"op": "move", "path": "/a"},
        {"path": "/a"},
    ],
)
def test_operations_that_cannot_be_carried_out_are_refused(operation):
    with pytest.raises(PatchError):
        patching.apply_json_patch({"a": 1, "b": [1, 2]}, [operation])


def test_copies_cannot_make_an_object_huge():
    text = "x" * (MAX_COPIED // 4)
    copies = [{"op": "copy", "from": "/a", "path": f"/b{number}"} for number in range(8)]
    with pytest.raises(PatchError, match="copied values are larger"):
        patching.apply_json_patch({"a": text}, copies)
    doublings = [{"op": "copy", "from": "/a", "path": "/a/-"}] * 60
    with pytest.raises(PatchError, match="copied values are larger"):
        patching.apply_json_patch({"a": [text[:1000]]}, doublings)


def difference(old, new):
    """The merge patch that makes one document of another, which has no nulls."""
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    changed = {name: difference(old.get(name), value) for name, value in new.items()}
    return changed | {name: None for name in old if name not in new}


@settings(max_examples=50)
@given(documents, documents)
def test_a_merge_patch_leads_from_one_document_to_the_other(old, new):
    before = copy.deepcopy(old)
    assert merged(old, difference(old, new)) == new
    assert merged(old, {}) == old == before


CONFIG = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c"}, "data": {"a": "1"}}


def refusal(content_type, body, kind=CONFIG_MAPS, current=CONFIG, **more):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    with pytest.raises(StatusError) as refused:
        patching.apply(kind, content_type, current, body, **more)
    return refused.value


@pytest.mark.parametrize(
    ("content_type", "body", "code"),
    [
        (JSON_PATCH, b"{", 400),
        (JSON_PATCH, {}, 400),
        (JSON_PATCH, [1], 400),
        (JSON_PATCH, [{"op": 1}], 400),
        (JSON_PATCH, [{"op": "remove", "path": "/x"}], 422),
        (JSON_PATCH, [{"op": "replace", "path": "/data", "value": 1}], 422),
        (JSON_PATCH, [{"op": "replace", "path": "/kind", "value": "Pod"}], 422),
        (JSON_PATCH, [{"op": "replace", "path": "", "value": []}], 422),
        (JSON_PATCH, [{"op": "test", "path": "/kind", "value": "x"}] * (MAX_OPERATIONS + 1), 413),
        (MERGE_PATCH, b"nope", 400),
        (MERGE_PATCH, [], 400),
        (MERGE_PATCH, b"null", 400),
        (MERGE_PATCH, {"data": []}, 422),
        (STRATEGIC_PATCH, [], 400),
        ("application/json", {}, 415),
        ("", {}, 415),
    ],
)
def test_what_is_no_patch_or_does_not_apply_is_refused(content_type, body, code):
    assert refusal(content_type, body).code == code


def test_custom_objects_have_no_strategic_patch():
    known = refusal(STRATEGIC_PATCH, {}, TOPOLOGIES).message
    assert STRATEGIC_PATCH not in known
    assert MERGE_PATCH in known


def test_a_patch_that_names_unknown_fields_is_warned_of_or_refused():
    body = b'{"x":1,"data":{"b":"2","b":"3"}}'
    said = ['duplicate field "data.b"', 'unknown field "x"']
    obj, warnings = patching.apply(CONFIG_MAPS, MERGE_PATCH, CONFIG, body)
    assert (obj["data"], warnings) == ({"a": "1", "b": "3"}, said)
    assert patching.apply(CONFIG_MAPS, MERGE_PATCH, CONFIG, body, field_validation="Ignore") == (obj, [])
    strict = refusal(MERGE_PATCH, body, field_validation="Strict")
    assert strict.code == 422
    assert "strict decoding error: " + ", ".join(said) in strict.message
    unknown = [{"op": "add", "path": "/data/b", "value": "2", "x": 1}]
    _, warnings = patching.apply(CONFIG_MAPS, JSON_PATCH, CONFIG, json.dumps(unknown).encode())
    assert warnings == ['unknown field "[0].x"']


@pytest.mark.parametrize("content_type", [JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH])
def test_a_patch_has_the_media_types_parameters_dropped_and_its_target_left_alone(content_type):
    body = {"metadata": {"labels": {"a": "b"}}}
    if content_type == JSON_PATCH:
        body = [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]
    pod = {**prepared(), "kind": "Pod", "apiVersion": "v1"}
    before = copy.deepcopy(pod)
    obj, _ = patching.apply(PODS, f"{content_type}; charset=utf-8", pod, json.dumps(body).encode())
    assert obj["metadata"]["labels"] == {"a": "b"}
    assert pod == before


def test_operations_cannot_nest_without_end():
    grown = [{"op": "add", "path": "/data" + "/a" * number, "value": {}} for number in range(1, 400)]
    assert refusal(JSON_PATCH, grown).code == 422
