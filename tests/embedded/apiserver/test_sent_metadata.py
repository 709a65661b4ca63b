"""Metadata that clients send and the server keeps, drops or refuses; patches that change nothing."""

from support.apiserver import CONFIG_MAPS, MERGE, config_map, served

NODES = "/api/v1/nodes"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


@served
async def test_a_generation_is_kept_where_the_server_counts_none(api):
    node = await api.made(NODES, {"metadata": {"name": "n", "generation": 7}})
    assert node["metadata"]["generation"] == 7
    pod = {"metadata": {"name": "p", "generation": 7}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await api.made("/api/v1/namespaces/default/pods", pod)
    assert made["metadata"]["generation"] == 1


@served
async def test_the_namespace_of_a_node_is_dropped(api):
    await api.made(NODES, {"metadata": {"name": "n", "namespace": "other"}})
    patch = b'{"metadata": {"namespace": "other", "labels": {"a": "b"}}}'
    answer = await api("PATCH", f"{NODES}/n", data=patch, headers=MERGE)
    assert answer.status == 200
    assert "namespace" not in answer.body["metadata"]
    assert answer.body["metadata"]["labels"] == {"a": "b"}


@served
async def test_a_conflict_about_a_node_names_its_key_in_etcd(api):
    await api.made(NODES, {"metadata": {"name": "n"}})
    answer = await api("PUT", f"{NODES}/n", {"metadata": {"name": "n", "uid": "other"}})
    assert answer.status == 409
    assert "Key: /registry/minions/n," in answer.body["message"]


@served
async def test_a_json_patch_of_nothing_changes_nothing(api):
    before = await api.made(CONFIG_MAPS, config_map("c"))
    answer = await api("PATCH", f"{CONFIG_MAPS}/c", data=b"null", headers=JSON_PATCH)
    assert (answer.status, answer.body) == (200, before)


@served
async def test_a_json_patch_that_is_not_validated_is_refused_by_the_patching_library(api):
    await api.made(CONFIG_MAPS, config_map("c"))
    path = f"{CONFIG_MAPS}/c?fieldValidation="
    ignored = await api("PATCH", f"{path}Ignore", data=b"{}", headers=JSON_PATCH)
    assert ignored.body["message"] == "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
    warned = await api("PATCH", f"{path}Warn", data=b"{}", headers=JSON_PATCH)
    assert warned.body["message"].endswith("Go value of type []handlers.jsonPatchOp")
