"""Discovery: what clients learn of groups, versions, resources and verbs."""

import pytest

from corelane.apiserver.openapi import discovery
from corelane.apiserver.served_kinds import KINDS

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v={};as=APIGroupDiscoveryList"


def test_every_kind_is_in_the_resource_list_of_each_of_its_versions():
    for kind in KINDS:
        for version in kind.versions:
            listed = discovery.resource_list(kind.group, version)
            assert listed["groupVersion"] == kind.api_version(version)
            mine = [r for r in listed["resources"] if r["name"] == kind.plural]
            assert [(r["kind"], r["namespaced"]) for r in mine] == [(kind.kind, kind.namespaced)]


def test_subresources_say_what_they_take_and_which_verbs_they_know():
    pods = {r["name"]: r for r in discovery.resource_list("", "v1")["resources"]}
    assert (pods["pods/log"]["kind"], pods["pods/log"]["verbs"]) == ("Pod", ["get"])
    assert (pods["pods/binding"]["kind"], pods["pods/binding"]["verbs"]) == ("Binding", ["create"])
    eviction = pods["pods/eviction"]
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    assert "pods/exec" not in pods


def test_namespaces_are_not_deleted_as_a_collection():
    resources = {r["name"]: r for r in discovery.resource_list("", "v1")["resources"]}
    assert "deletecollection" not in resources["namespaces"]["verbs"]
    assert "deletecollection" in resources["nodes"]["verbs"]


@pytest.mark.parametrize(
    "path", ["/", "/api/v2", "/apis/none", "/apis/coordination.k8s.io/v9", "/apis//v1", "/x"]
)
def test_what_is_not_served_has_no_document(path):
    assert discovery.answer(path, "application/json") is None


@pytest.mark.parametrize(
    ("accept", "version"),
    [
        ("application/json", ""),
        ("*/*", ""),
        (AGGREGATED.format("v2"), "v2"),
        (AGGREGATED.format("v2beta1") + ",application/json", "v2beta1"),
        (f"{AGGREGATED.format('v2')},{AGGREGATED.format('v2beta1')},application/json", "v2"),
        (f"{AGGREGATED.format('v9')}, {AGGREGATED.format('v2')}", "v2"),
        (AGGREGATED.format("v9"), ""),
        ("application/json;as=Table;v=v1;g=meta.k8s.io", ""),
        (";;==,", ""),
    ],
)
def test_the_accept_header_chooses_the_aggregated_form(accept, version):
    assert discovery.aggregated_version(accept) == version


def test_aggregated_discovery_names_itself_in_body_and_content_type():
    body, content_type = discovery.answer("/apis", AGGREGATED.format("v2"))
    assert body["kind"] == "APIGroupDiscoveryList"
    assert body["apiVersion"] == "apidiscovery.k8s.io/v2"
    assert content_type == AGGREGATED.format("v2")
    plain, content_type = discovery.answer("/apis/", "application/json")
    assert (plain["kind"], content_type) == ("APIGroupList", "application/json")


def test_both_forms_of_discovery_tell_the_same():
    for path, groups in (("/api", [""]), ("/apis", discovery.groups())):
        items = discovery.aggregated(path)["items"]
        assert [item["metadata"]["name"] for item in items] == groups
        for item in items:
            for version in item["versions"]:
                plain = discovery.resource_list(item["metadata"]["name"], version["version"])["resources"]
                assert [_flat(r) for r in plain] == list(_flattened(version["resources"]))


def _flat(resource):
    return resource["name"], resource["kind"], resource["verbs"], resource.get("shortNames", [])


def _flattened(resources):
    for entry in resources:
        name = entry["resource"]
        yield name, entry["responseKind"]["kind"], entry["verbs"], entry.get("shortNames", [])
        for below in entry.get("subresources", []):
            yield f"{name}/{below['subresource']}", below["responseKind"]["kind"], below["verbs"], []
