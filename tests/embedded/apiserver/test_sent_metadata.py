"""Metadata that clients send and the server keeps, drops or refuses; patches that change nothing."""

from support.apiserver import CONFIG_MAPS, MERGE, config_map

NODES = "/api/v1/nodes"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}


async def test_a_generation_is_kept_where_the_server_counts_none(api):
    node = await api.made(NODES, {"metadata": {"name": "n", "generation": 7}})
    assert node["metadata"]["generation"] == 7
    pod = {"metadata": {"name": "p", "generation": 7}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    made = await api.made("/api/v1/namespaces/default/pods", pod)
    assert made["metadata"]["generation"] == 1


async def test_the_namespace_of_a_node_is_dropped(api):
    await api.made(NODES, {"metadata": {"name": "n", "namespace": "other"}})
    patch = b'{"metadata": {"namespace": "other", "labels": {"a": "b"}}}'
    answer = await api("PATCH", f"{NODES}/n", data=patch, headers=MERGE)
    assert answer.status == 200
    assert "namespace" not in answer.body["metadata"]
    assert answer.body["metadata"]["labels"] == {"a": "b"}


async def test_a_conflict_names_the_uids(api):
    await api.made(NODES, {"metadata": {"name": "n"}})
    answer = await api("PUT", f"{NODES}/n", {"metadata": {"name": "n", "uid": "other"}})
    assert answer.status == 409
    assert "uid other given" in answer.body["message"]


async def test_a_json_patch_of_nothing_changes_nothing(api):
    before = await api.made(CONFIG_MAPS, config_map("c"))
    answer = await api("PATCH", f"{CONFIG_MAPS}/c", data=b"null", headers=JSON_PATCH)
    assert (answer.status, answer.body) == (200, before)
