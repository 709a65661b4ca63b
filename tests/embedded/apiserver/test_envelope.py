"""Bodies of objects: what is read, and upstream's words for what is not one."""

import pytest

from corelane.embedded.apiserver import served_kinds
from corelane.embedded.apiserver.codec import envelope, protobuf_reading
from corelane.embedded.apiserver.codec.json_reading import ReadError
from corelane.embedded.apiserver.status_errors import StatusError

(CONFIG_MAP,) = (kind for kind in served_kinds.KINDS if kind.kind == "ConfigMap")
(TOPOLOGY,) = (kind for kind in served_kinds.KINDS if kind.kind == "NodeResourceTopology")
YAML = "application/yaml"
REPEATED = b"kind: ConfigMap\nmetadata:\n  name: a\n  name: b\ndata:\n  k: v\n  k: w\nmore: 1\n"
UNPARSED = "couldn't get version/kind; json parse error: "


def refusal(body, content_type="application/json", kind=CONFIG_MAP, **more):
    with pytest.raises(StatusError) as error:
        envelope.decode(kind, kind.version, body, content_type=content_type, **more)
    assert error.value.code == 400
    return error.value.message


@pytest.mark.parametrize(
    ("body", "media"), [(b"null", "application/json"), (b"null", YAML), (b"# c", YAML), (b"", YAML)]
)
def test_null_is_an_object_without_members(body, media):
    assert envelope.decode(CONFIG_MAP, "v1", body, content_type=media) == (
        {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {}},
        [],
    )


def test_a_custom_object_of_null_lacks_its_kind():
    assert "Object 'Kind' is missing in 'null'" in refusal(b"null", kind=TOPOLOGY)


def test_what_is_no_object_is_refused_with_gos_name_of_the_type():
    assert refusal(b"[]") == (
        f"the object provided is unrecognized (must be of type ConfigMap): {UNPARSED}"
        r"json: cannot unmarshal array into Go value of type struct { "
        r'APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" } (5b5d)'
    )


@pytest.mark.parametrize("kind", [CONFIG_MAP, TOPOLOGY])
def test_an_api_version_of_three_parts_is_refused(kind):
    assert refusal(b'{"kind":"X","apiVersion":"a/b/c"}', kind=kind) == (
        f"the object provided is unrecognized (must be of type {kind.kind}): "
        'unexpected GroupVersion string: a/b/c ({"kind":"X","apiVersion":"a/b/ ...)'
    )


def test_faults_of_yaml_come_without_words_about_json():
    assert refusal(b"a: [b", YAML).endswith(
        "ConfigMap): yaml: line 1: did not find expected ',' or ']' (613a205b62)"
    )
    assert UNPARSED in refusal(b"{", "application/json")


def test_the_list_of_a_kind_is_another_kind():
    assert refusal(b'{"kind":"PodList","apiVersion":"v1"}') == (
        'PodList in version "v1" cannot be handled as a ConfigMap: '
        "converting (v1.PodList) to (core.ConfigMap): unknown conversion"
    )


def test_a_list_of_anything_is_another_kind():
    assert "converting (v1.List)" in refusal(b'{"kind":"List","apiVersion":"v1"}')


def test_what_is_no_protobuf_is_quoted():
    with pytest.raises(ReadError, match="expected prefix") as error:
        protobuf_reading.read(b"x")
    assert str(error.value).endswith("[107 56 115 0] (78)")


def test_whole_numbers_of_custom_objects_have_no_fraction():
    body = b'{"kind":"NodeResourceTopology","apiVersion":"topology.node.k8s.io/v1alpha2",'
    body += (
        b'"metadata":{"name":"n"},"zones":[{"name":"a","type":"Node","costs":[{"name":"a","value":1.0}]}]}'
    )
    obj = envelope.decode(TOPOLOGY, TOPOLOGY.version, body)[0]
    assert repr(obj["zones"][0]["costs"][0]["value"]) == "1"


def test_keys_that_yaml_repeats_are_warnings_each():
    obj, warnings = envelope.decode(CONFIG_MAP, "v1", REPEATED, content_type=YAML)
    assert (obj["metadata"]["name"], obj["data"]) == ("b", {"k": "w"})
    assert warnings == [
        'line 4: key "name" already set in map',
        'line 7: key "k" already set in map',
        'unknown field "more"',
    ]


def test_keys_that_yaml_repeats_are_one_error_where_fields_are_validated_strictly():
    assert refusal(REPEATED, YAML, field_validation="Strict").endswith(
        "strict decoding error: yaml: unmarshal errors:\n"
        '  line 4: key "name" already set in map\n'
        '  line 7: key "k" already set in map, unknown field "more"'
    )
    assert envelope.decode(CONFIG_MAP, "v1", REPEATED, content_type=YAML, field_validation="Ignore")[1] == []
