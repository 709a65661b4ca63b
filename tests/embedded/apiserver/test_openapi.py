"""The OpenAPI documents hold together and say what kubectl looks for."""

import json
import struct

import pytest

from corelane.embedded.apiserver import openapi
from corelane.embedded.apiserver.openapi import protobuf
from corelane.embedded.apiserver.served_kinds import KINDS

GROUPS = sorted(openapi.v3_root()["paths"])
VERSIONS = [path for path in GROUPS if "components" in openapi.v3_group(path)]


def references(value):
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def operations(document):
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


@pytest.mark.parametrize("path", VERSIONS)
def test_every_reference_in_a_group_document_resolves_and_none_is_idle(path):
    document = openapi.v3_group(path)
    names = set(document["components"]["schemas"])
    found = {ref.removeprefix("#/components/schemas/") for ref in references(document)}
    assert found <= names
    lists = {name for name in names if name.endswith("List")}
    assert names - found <= lists | {"io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"}


def test_every_reference_in_the_v2_document_resolves():
    document = openapi.v2_json()
    found = {ref.removeprefix("#/definitions/") for ref in references(document)}
    assert found <= set(document["definitions"])


@pytest.mark.parametrize("document", [*map(openapi.v3_group, VERSIONS), openapi.v2_json()])
def test_operation_ids_are_unique(document):
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.plural}.{kind.group}")
def test_every_kind_can_be_patched_with_field_validation_and_has_a_schema_of_its_name(kind):
    for version in kind.versions:
        gvk = {"group": kind.group, "version": version, "kind": kind.kind}
        path = f"apis/{kind.group}/{version}" if kind.group else "api/v1"
        for document in (openapi.v3_group(path), openapi.v2_json()):
            patches = [
                operation
                for _, method, operation in operations(document)
                if method == "patch" and operation["x-kubernetes-group-version-kind"] == gvk
            ]
            assert patches
            for patch in patches:
                assert {"fieldValidation", "dryRun"} <= {p["name"] for p in patch["parameters"]}
            schemas = document.get("definitions") or document["components"]["schemas"]
            named = [s for s in schemas.values() if gvk in s.get("x-kubernetes-group-version-kind", [])]
            assert len(named) == 1


def test_strategic_merge_patches_are_offered_for_built_in_kinds_only():
    for path, strategic in (("api/v1", True), ("apis/topology.node.k8s.io/v1alpha2", False)):
        for _, method, operation in operations(openapi.v3_group(path)):
            if method == "patch":
                content = operation["requestBody"]["content"]
                assert ("application/strategic-merge-patch+json" in content) is strategic


def test_a_schema_tells_how_lists_merge_what_is_required_and_the_choices():
    schemas = openapi.v3_group("api/v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert schemas["io.k8s.api.core.v1.PodSpec"]["required"] == ["containers"]
    meta = schemas["io.k8s.api.core.v1.Pod"]["properties"]["metadata"]
    assert meta["allOf"] == [{"$ref": "#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]
    requests = schemas["io.k8s.api.core.v1.ResourceRequirements"]["properties"]["requests"]
    assert requests["additionalProperties"]["$ref"].endswith(".Quantity")


def test_in_v2_a_reference_stands_beside_its_description_since_old_clients_know_no_all_of():
    spec = openapi.v2_json()["definitions"]["io.k8s.api.core.v1.Pod"]["properties"]["spec"]
    assert spec["$ref"] == "#/definitions/io.k8s.api.core.v1.PodSpec"
    assert spec["description"]


def test_the_root_names_every_document_with_a_hash_of_its_content():
    for path, entry in openapi.v3_root()["paths"].items():
        url, _, digest = entry["serverRelativeURL"].partition("?hash=")
        assert url == f"/openapi/v3/{path}"
        assert len(digest) == 64
        assert openapi.v3_group(f"/{path}") is openapi.v3_group(f"/{path}")
    assert openapi.v3_group("apis/none/v1") is None


def decode(raw):
    """A protobuf message as (field number, value) pairs: ints, and bytes for what has a length."""

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = raw[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    at, pairs = 0, []
    while at < len(raw):
        key = varint()
        if key & 7 == 0:
            pairs.append((key >> 3, varint()))
            continue
        if key & 7 == 1:
            pairs.append((key >> 3, struct.unpack("<d", raw[at : at + 8])[0]))
            at += 8
            continue
        assert key & 7 == 2
        length = varint()
        pairs.append((key >> 3, raw[at : at + length]))
        assert at + length <= len(raw)
        at += length
    return pairs


def within(raw, number):
    return [value for field, value in decode(raw) if field == number]


def named(raw, number):
    """The entries of one of gnostic's maps."""
    return {within(entry, 1)[0].decode(): within(entry, 2)[0] for entry in within(raw, number)}


def test_ranges_lengths_and_patterns_of_the_tables_are_shown():
    schemas = openapi.v3_group("api/v1")["components"]["schemas"]
    port = schemas["io.k8s.api.core.v1.ContainerPort"]["properties"]
    assert (port["containerPort"]["minimum"], port["containerPort"]["maximum"]) == (1, 65535)
    assert port["hostPort"]["minimum"] == 0  # unset
    spec = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]
    assert spec["hostnameOverride"]["maxLength"] == 64
    assert spec["nodeName"]["pattern"].startswith("^([a-z0-9]")
    assert spec["restartPolicy"]["enum"] == ["Always", "OnFailure", "Never"]


def test_the_protobuf_document_holds_every_path_and_definition():
    raw = openapi.v2_protobuf()
    assert within(raw, 1) == [b"2.0"]
    assert list(named(within(raw, 8)[0], 2)) == list(openapi.v2_json()["paths"])
    assert list(named(within(raw, 9)[0], 1)) == list(openapi.v2_json()["definitions"])


def test_the_protobuf_document_says_what_kubectl_looks_for_in_a_patch():
    paths = named(within(openapi.v2_protobuf(), 8)[0], 2)
    patch = within(paths["/api/v1/namespaces/{namespace}/pods/{name}"], 8)[0]
    yaml = within(named(patch, 13)["x-kubernetes-group-version-kind"], 2)[0]
    assert json.loads(yaml) == {"group": "", "version": "v1", "kind": "Pod"}
    parameters = [within(item, 1)[0] for item in within(patch, 8)]
    queries = [within(within(p, 2)[0], 3) for p in parameters if within(p, 2)]
    assert b"fieldValidation" in [within(q[0], 4)[0] for q in queries if q]


def test_the_protobuf_document_has_the_schemas_as_in_json():
    definitions = named(within(openapi.v2_protobuf(), 9)[0], 1)
    spec = definitions["io.k8s.api.core.v1.PodSpec"]
    assert within(spec, 19) == [b"containers"]
    containers = named(within(spec, 25)[0], 1)["containers"]
    port = named(within(definitions["io.k8s.api.core.v1.ContainerPort"], 25)[0], 1)["containerPort"]
    assert (within(port, 9), within(port, 7)) == ([1.0], [65535.0])
    item = within(within(containers, 23)[0], 1)[0]
    assert within(item, 1) == [b"#/definitions/io.k8s.api.core.v1.Container"]
    assert json.loads(within(named(containers, 31)["x-kubernetes-patch-merge-key"], 2)[0]) == "name"


@pytest.mark.parametrize("length", [0, 1, 127, 128, 300, 70_000])
def test_lengths_of_every_size_are_written_as_varints(length):
    raw = protobuf.document({"swagger": "x" * length})
    assert within(raw, 1) == [b"x" * length]


def test_a_member_without_a_row_is_an_error_and_not_lost():
    with pytest.raises(KeyError, match="externalDocs"):
        protobuf.document({"externalDocs": {}})
