import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.kube import decode, objects
from corelane.kube.objects import Node, NodeResourceTopology
from corelane.kube.pod import Pod
from corelane.kube.storage import PersistentVolume, PersistentVolumeClaim, StorageClass

GOLDEN = Path(__file__).parents[3] / "shared" / "data" / "kubernetes-golden"

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def pod(name: str, **spec: object) -> dict[str, object]:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": spec}


def body(*items: object, **metadata: str) -> bytes:
    return json.dumps({"metadata": metadata, "items": items}).encode()


def test_one_malformed_object_never_hides_the_others() -> None:
    listed = decode.decode_page(Pod, body(pod("a"), pod("b", containers=3), pod("c"), resourceVersion="7"))
    assert [item.metadata.name for item in listed.items] == ["a", "c"]
    (bad,) = listed.malformed
    assert bad.key == ("ns", "b")
    assert str(bad) == (
        "Pod ns/b is malformed and left out: Expected `array`, got `int` - at `$.spec.containers`"
    )
    assert listed.resource_version == "7"


def test_null_counts_as_absent() -> None:
    read = decode.decode_object(Pod, json.dumps(pod("a", containers=None, nodeName=None)).encode())
    assert isinstance(read, Pod)
    assert read.spec.containers == ()
    assert decode.decode_page(Pod, b'{"metadata": {}, "items": null}').items == []


def test_raw_fields_survive_the_lenient_way() -> None:
    affinity = {"podAffinity": {"x": [1]}}
    read = decode.decode_object(Pod, json.dumps(pod("a", containers=None, affinity=affinity)).encode())
    assert isinstance(read, Pod)
    assert read.spec.affinity is not None
    assert bytes(read.spec.affinity.pod_affinity) == b'{"x":[1]}'
    assert bytes(read.spec.affinity.pod_anti_affinity) == b""


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b'"pod"', b'{"metadata": 3}', b"[" * 20000])
def test_what_is_no_object_is_malformed(text: bytes) -> None:
    assert isinstance(decode.decode_object(Pod, text), decode.Malformed)


@given(st.lists(JUNK, max_size=4), st.integers(0, 4))
def test_any_json_among_the_items_leaves_the_good_ones(junk: list[object], at: int) -> None:
    items = [*junk[:at], pod("good"), *junk[at:]]
    listed = decode.decode_page(Pod, body(*items))
    assert [p.metadata.name for p in listed.items if p.metadata.namespace] == ["good"]
    assert len(listed.items) + len(listed.malformed) == len(items)


def test_what_is_no_list_is_an_error() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode.decode_page(Pod, b"<html>")
    with pytest.raises(msgspec.ValidationError):
        decode.decode_page(Pod, b"[]")


def golden(kind: type[objects.Object]) -> bytes:
    name = f"{kind.api.group or 'core'}.{kind.api.version}.{kind.api.kind}.json"
    if not (GOLDEN / name).is_file():
        pytest.skip("upstream's golden objects are not beside this checkout")
    return (GOLDEN / name).read_bytes()


NAMED_LIKE_UPSTREAMS = [
    Pod,
    Node,
    objects.Lease,
    objects.PriorityClass,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
]


@pytest.mark.parametrize("kind", NAMED_LIKE_UPSTREAMS, ids=lambda k: k.__name__)
def test_every_field_that_we_name_is_upstreams(kind: type[objects.Object]) -> None:
    """A golden object has every field set, so one misspelt here would stay at its default."""
    read = decode.decode_object(kind, golden(kind))
    assert isinstance(read, kind)
    assert list(unset(read, kind.__name__)) == []


def unset(struct: msgspec.Struct, path: str) -> Iterator[str]:
    """Paths of fields that still have their default."""
    default = type(struct)()
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        plain = bytes if isinstance(value, msgspec.Raw) else lambda x: x
        if plain(value) == plain(getattr(default, name)):
            yield f"{path}.{name}"
        inner = value[0] if isinstance(value, tuple) and value else value
        if isinstance(inner, msgspec.Struct):
            yield from unset(inner, f"{path}.{name}")


def test_topologies_of_equal_nodes_share_their_zones_and_annotations():
    def read(name, cpus):
        zone = {"name": "node-0", "type": "Node", "resources": [{"name": "cpu", "available": cpus}]}
        text = json.dumps({"metadata": {"name": name, "annotations": {"a": "x" * 99}}, "zones": [zone]})
        return decode.decode_object(NodeResourceTopology, text.encode())

    one, same, other = read("one", "4"), read("same", "4"), read("other", "3")
    assert one.zones is same.zones
    assert other.zones[0].resources[0].available == "3"
    assert one.metadata.annotations["a"] is same.metadata.annotations["a"]
    for number in range(300):
        assert read(f"n{number}", str(number)).zones[0].resources[0].available == str(number)
