"""Discovery: what clients learn of groups, versions, resources and verbs."""

from corelane.embedded.apiserver.openapi import discovery

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


async def test_the_accept_header_chooses_the_form_of_discovery(api):
    """As kube-apiserver 1.36, which has no v2beta1 any more."""
    plain, older = "application/json", AGGREGATED.replace("v2", "v2beta1")
    for path in ("/api", "/apis"):
        for accept, kind in (
            (AGGREGATED, "APIGroupDiscoveryList"),
            (f"{older},{AGGREGATED},{plain}", "APIGroupDiscoveryList"),
            (f"{plain},{AGGREGATED};q=0.1", "APIGroupDiscoveryList"),
            (f"{AGGREGATED};profile=nopeer", "APIGroupDiscoveryList"),
            (f"{older},{plain}", None),
            (plain, None),
            ("*/*", None),
        ):
            answer = await api.get(path, headers={"Accept": accept})
            assert answer.status == 200, accept
            expected = kind or {"/api": "APIVersions", "/apis": "APIGroupList"}[path]
            assert answer.body["kind"] == expected
            assert answer.headers["Content-Type"] == (AGGREGATED if kind else plain)
        for accept in (older, "text/html", "application/json;as=Table;v=v1;g=meta.k8s.io"):
            assert (await api.get(path, headers={"Accept": accept})).status == 406


async def test_aggregated_discovery_is_sent_once_to_who_keeps_it(api):
    first = await api.get("/apis", headers={"Accept": AGGREGATED})
    assert (first.headers["Cache-Control"], first.headers["Vary"]) == ("public", "Accept")
    tag = first.headers["ETag"]
    again = await api.get("/apis", headers={"Accept": AGGREGATED, "If-None-Match": tag})
    assert (again.status, again.headers["ETag"]) == (304, tag)


def test_both_forms_of_discovery_tell_the_same():
    for path, groups in (("/api", [""]), ("/apis", discovery.groups())):
        items = discovery.aggregated(path)["items"]
        assert [item["metadata"].get("name", "") for item in items] == groups
        for item in items:
            for version in item["versions"]:
                plain = discovery.resource_list(item["metadata"].get("name", ""), version["version"])[
                    "resources"
                ]
                assert [_flat(r) for r in plain] == list(_flattened(version["resources"]))


def _flat(resource):
    return resource["name"], resource["kind"], resource["verbs"], resource.get("shortNames", [])


def _flattened(resources):
    for entry in resources:
        name = entry["resource"]
        yield name, entry["responseKind"]["kind"], entry["verbs"], entry.get("shortNames", [])
        for below in entry.get("subresources", []):
            yield f"{name}/{below['subresource']}", below["responseKind"]["kind"], below["verbs"], []
