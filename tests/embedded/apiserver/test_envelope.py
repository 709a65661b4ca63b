"""Bodies of objects: what is read, and what is refused."""

import pytest

from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.codec import request_bodies
from corelane.embedded.apiserver.status_errors import StatusError

(CONFIG_MAP,) = (kind for kind in served_kinds.KINDS if kind.kind == "ConfigMap")
(TOPOLOGY,) = (kind for kind in served_kinds.KINDS if kind.kind == "NodeResourceTopology")
YAML = "application/yaml"
REPEATED = b"kind: ConfigMap\nmetadata:\n  name: a\n  name: b\ndata:\n  k: v\n  k: w\nmore: 1\n"


def refusal(body, content_type="application/json", kind=CONFIG_MAP, **more):
    with pytest.raises(StatusError) as error:
        request_bodies.decode(kind, kind.version, body, content_type=content_type, **more)
    assert error.value.code == 400
    return error.value.message


@pytest.mark.parametrize(
    ("body", "media"), [(b"null", "application/json"), (b"null", YAML), (b"# c", YAML), (b"", YAML)]
)
def test_null_is_an_object_without_members(body, media):
    assert request_bodies.decode(CONFIG_MAP, "v1", body, content_type=media) == (
        {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}},
        [],
    )


def test_a_custom_object_of_null_lacks_its_kind():
    assert "kind is missing, expected NodeResourceTopology" in refusal(b"null", kind=TOPOLOGY)


@pytest.mark.parametrize("kind", [CONFIG_MAP, TOPOLOGY])
def test_an_api_version_of_three_parts_is_refused(kind):
    assert "got a/b/c X, expected" in refusal(b'{"kind":"X","apiVersion":"a/b/c"}', kind=kind)


def test_whole_numbers_of_custom_objects_have_no_fraction():
    body = b'{"kind":"NodeResourceTopology","apiVersion":"topology.node.k8s.io/v1alpha2",'
    body += (
        b'"metadata":{"name":"n"},"zones":[{"name":"a","type":"Node","costs":[{"name":"a","value":1.0}]}]}'
    )
    obj = request_bodies.decode(TOPOLOGY, TOPOLOGY.version, body)[0]
    assert repr(obj["zones"][0]["costs"][0]["value"]) == "1"


def test_keys_that_yaml_repeats_are_warnings_each():
    obj, warnings = request_bodies.decode(CONFIG_MAP, "v1", REPEATED, content_type=YAML)
    assert (obj["metadata"]["name"], obj["data"]) == ("b", {"k": "w"})
    assert warnings == ['duplicate field "metadata.name"', 'duplicate field "data.k"', 'unknown field "more"']


def test_keys_that_yaml_repeats_are_one_error_where_fields_are_validated_strictly():
    assert refusal(REPEATED, YAML, field_validation="Strict").endswith(
        'duplicate field "metadata.name", duplicate field "data.k", unknown field "more"'
    )
    assert (
        request_bodies.decode(CONFIG_MAP, "v1", REPEATED, content_type=YAML, field_validation="Ignore")[1]
        == []
    )
