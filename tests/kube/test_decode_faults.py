"""Lists, objects and watch lines with any fault in one item: the others are always decoded."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from corelane.kube import decode
from corelane.kube.apierrors import APIError, MalformedObject
from corelane.kube.kubelet import PodList
from corelane.kube.objects import KINDS, Lease, Node, NodeResourceTopology, PodDisruptionBudget
from corelane.kube.pod import Pod

DEPTHS = [90, 101, 480, 990, 1000, 1500, 10_000, 100_000]
GOOD = {
    "metadata": {"name": "good", "namespace": "ns", "uid": "u", "resourceVersion": "9"},
    "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]},
}


def nested(depth: int, opening: bytes = b'{"f:x":', closing: bytes = b"}") -> bytes:
    return opening * depth + b"1" + closing * depth


def with_managed_fields(value: bytes) -> bytes:
    fields = b'[{"manager":"m","fieldsV1":' + value + b"}]"
    return json.dumps(GOOD).encode().replace(b'"uid"', b'"managedFields":' + fields + b',"uid"', 1)


def page(*items: bytes) -> bytes:
    return b'{"metadata":{"resourceVersion":"7","continue":"c"},"items":[' + b",".join(items) + b"]}"


ODD_VALUES = [
    b'"\xff\xfe"', b'{"\xc3(":1}', rb'"\ud800"', rb'"\udc00\ud800 \ud83d\ude00"', b"9" * 100_000, b"1e999",
    b'"' + b"x" * 1_000_000 + b'"', b'{"a":1,"a":2}', b"[null]", b'"[[[{{{"', rb'"\"[\\"', b"-0.0",
    *map(nested, DEPTHS), *(nested(depth, b"[", b"]") for depth in DEPTHS),
]  # fmt: skip


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: f"{value[:12]!r}+{len(value)}")
def test_a_field_that_is_not_read_may_hold_anything(value: bytes) -> None:
    raw = with_managed_fields(value)
    sound = decode.decode_object(Pod, json.dumps(GOOD).encode())
    assert decode.decode_object(Pod, raw) == sound
    listed = decode.decode_page(Pod, page(raw, json.dumps(GOOD).encode()))
    assert (listed.items, listed.malformed) == ([sound, sound], [])
    assert (listed.resource_version, listed.continuation) == ("7", "c")
    event = decode.decode_event(Pod, b'{"type":"ADDED","object":' + raw + b"}")
    assert (event.type, event.object, event.resource_version) == ("ADDED", sound, "9")
    assert PodList(Pod).read(page(raw)).items == (sound,)


def put(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    copy = dict(tree) if isinstance(tree, dict) else list(tree)
    copy[path[0]] = put(copy[path[0]], path[1:], value)
    return copy


def paths(tree: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [at, *(path for key, value in inner for path in paths(value, (*at, key)))]


WRONG = [None, True, 7, -1.5, 1 << 70, "", "x", [], {}, [None], {"a": None}, [[[]]], {"": {"": {}}}]


@pytest.mark.parametrize("kind", [*KINDS, PodDisruptionBudget], ids=lambda kind: kind.__name__)
@given(path=st.sampled_from(paths(GOOD)), wrong=st.sampled_from(WRONG))
def test_a_value_of_a_wrong_type_anywhere_spoils_its_own_object_alone(kind, path, wrong) -> None:
    broken = json.dumps(put(GOOD, path, wrong)).encode()
    sound = json.dumps(GOOD).encode()
    listed = decode.decode_page(kind, page(sound, broken, sound))
    assert len(listed.items) + len(listed.malformed) == 3
    assert [item.metadata.uid for item in listed.items].count("u") >= 2


FAULTS = (
    st.binary(max_size=40)
    | st.sampled_from(ODD_VALUES)
    | st.builds(lambda at: json.dumps(GOOD).encode()[:at], st.integers(0, 120))
    | st.builds(nested, st.integers(0, 3000))
)


@given(fault=FAULTS, at=st.integers(0, 2))
@example(fault=b'"a,b"', at=1)
@example(fault=rb'{"a":"\x"}', at=1)
@example(fault=b'{"a":[}', at=1)
def test_a_corrupted_list_never_loses_its_good_items(fault: bytes, at: int) -> None:
    """Unless the fault contains a bracket or a quote without its other one: then the list is an error."""
    items = [json.dumps(put(GOOD, ("metadata", "name"), name)).encode() for name in ("a", "b")]
    try:
        listed = decode.decode_page(Pod, page(*items[:at], fault, *items[at:]))
    except msgspec.DecodeError:
        assert not balanced(fault)
        return
    if balanced(fault):
        assert [item.metadata.name for item in listed.items if item.metadata.uid] == ["a", "b"]
    assert listed.resource_version == "7" or not balanced(fault)


def balanced(text: bytes) -> bool:
    """Whether quotes and brackets, counted without regard to their kind, are complete and in order."""
    depth, within, position = 0, False, 0
    while position < len(text):
        char = text[position : position + 1]
        if within and char == b"\\":
            position += 1
        elif char == b'"':
            within = not within
        elif not within and char in b"[{":
            depth += 1
        elif not within and char in b"]}":
            depth -= 1
            if depth < 0:
                return False
        position += 1
    return depth == 0 and not within and position == len(text)


@given(st.binary(max_size=60) | st.sampled_from(ODD_VALUES), st.sampled_from([Pod, Node, Lease]))
def test_any_bytes_are_an_object_or_a_documented_error(data: bytes, kind: type[Any]) -> None:
    decode.decode_object(kind, data)
    decode.plain_json(data)
    decode.resource_version_of(data)
    for read in (lambda: decode.decode_page(kind, data), lambda: PodList(kind).read(data)):
        with contextlib.suppress(msgspec.DecodeError):
            read()
    for line in (
        data,
        b'{"type":"ADDED","object":' + data + b"}",
        b'{"type":"ERROR","object":' + data + b"}",
    ):
        with contextlib.suppress(APIError):
            decode.decode_event(kind, line)


def test_a_bound_pod_with_a_malformed_field_still_counts_by_its_requests() -> None:
    tree = put(GOOD, ("spec", "containers"), [{**GOOD["spec"]["containers"][0], "env": 3}])
    tree["metadata"] |= {"labels": {"a": 1, "b": "c"}, "annotations": [1]}
    bad = decode.decode_object(Pod, json.dumps({**tree, "status": {"phase": "Running", "x": 1}}).encode())
    assert isinstance(bad, decode.Malformed)
    assert bad.remainder.spec.node_name == "n"
    assert bad.remainder.spec.containers[0].resources.requests == {"cpu": "2"}
    assert bad.remainder.metadata.labels == {"b": "c"}
    assert bad.remainder.status.phase == "Running"
    assert "counted by its requests only" in str(bad)


@pytest.mark.parametrize("change", [("nodeName", ""), ("containers", 3), ("containers", [{"resources": 4}])])
def test_nothing_is_counted_of_a_malformed_pod_without_node_or_requests(change) -> None:
    key, value = change
    tree = put(GOOD, ("spec", key), value) | {"status": 3}
    bad = decode.decode_object(Pod, json.dumps(tree).encode())
    assert isinstance(bad, decode.Malformed)
    assert (bad.remainder, bad.key, bad.uid) == (None, ("ns", "good"), "u")


def test_an_endless_line_of_a_watch_is_an_error() -> None:
    lines = decode.Lines()
    with pytest.raises(MalformedObject):
        for _ in range(decode.LONGEST_LINE // (1 << 20) + 1):
            assert list(lines.feed(b"x" * (1 << 20))) == []


@given(st.recursive(st.none() | st.text(max_size=2), st.lists, max_leaves=20))
def test_repaired_json_that_needs_no_repair_is_unchanged(tree: object) -> None:
    text = json.dumps(tree).encode()
    assert decode.repaired(text) == text


def test_a_topology_nested_deeper_than_any_field_keeps_its_zones() -> None:
    zones = b'[{"name":"node-0","type":"Node","x":' + nested(5000) + b"}]"
    read = decode.decode_object(NodeResourceTopology, b'{"metadata":{"name":"n"},"zones":' + zones + b"}")
    assert isinstance(read, NodeResourceTopology)
    assert read.zones[0].name == "node-0"
