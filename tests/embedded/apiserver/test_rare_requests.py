"""Requests that few clients send, answered as kube-apiserver 1.36.2 answers them."""

import asyncio
import base64

import pytest

from corelane.embedded.apiserver.served_kinds import PODS as PODS_KIND
from corelane.embedded.apiserver.status_errors import StatusError
from corelane.embedded.apiserver.store.server_backend import generate_name
from corelane.embedded.apiserver.write import patching
from support.apiserver import CONFIG_MAPS, MERGE, NAMESPACES, PODS, config_map, pod, serving

NODES = "/api/v1/nodes"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SECRETS = "/api/v1/namespaces/default/secrets"
JSON_PATCH = {"Content-Type": "application/json-patch+json"}
TABLE = "as=Table;v=v1;g=meta.k8s.io"


async def test_overhead_needs_a_runtime_class(api):
    for overhead in ({"cpu": "1"}, {"example.com/a": "2", "memory": "1Mi"}):
        answer = await api("POST", PODS, pod(overhead=overhead))
        (cause,) = answer.body["details"]["causes"]
        assert (answer.status, cause["reason"], cause["field"]) == (
            403,
            "FieldValueForbidden",
            "spec.overhead",
        )
    assert (await api("POST", PODS, pod(overhead={"cpu": "-1"}))).status == 422


async def test_the_log_of_a_pod_without_a_node_has_no_content(api):
    await api.made(PODS, pod())
    answer = await api.get(f"{PODS}/p/log")
    assert (answer.status, answer.body) == (204, "")
    assert "Content-Type" not in answer.headers


async def test_the_stop_signal_in_a_status_is_kept_whatever_it_is(api):
    await api.made(PODS, pod())
    for signal in ("SIGKILL", "SIGODD", ""):
        status = {"name": "c", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
        patch = {"status": {"containerStatuses": [status | {"stopSignal": signal}]}}
        answer = await api("PATCH", f"{PODS}/p/status", patch, headers=MERGE)
        assert answer.body["status"]["containerStatuses"][0]["stopSignal"] == signal


async def test_a_version_that_is_not_a_number_does_not_hinder_a_create(api):
    body = {"metadata": {"name": "b", "resourceVersion": "x"}, "spec": {"minAvailable": 1}}
    assert (await api.made(BUDGETS, body))["metadata"]["resourceVersion"].isdigit()
    body["metadata"] |= {"name": "c", "resourceVersion": "7"}
    assert (await api("POST", BUDGETS, body)).status == 500


async def test_unprintable_characters_of_a_field_manager_are_refused(api):
    answer = await api("POST", f"{CONFIG_MAPS}?fieldManager=%C3%A9%0A%00", {"metadata": {"name": "a"}})
    assert [(cause["reason"], cause["field"]) for cause in answer.body["details"]["causes"]] == [
        ("FieldValueInvalid", "fieldManager")
    ]


async def test_an_eviction_from_a_terminating_namespace_names_the_pod_of_the_path(api):
    await api.made(NAMESPACES, {"metadata": {"name": "t"}})
    await api("DELETE", f"{NAMESPACES}/t")
    answer = await api("POST", f"{NAMESPACES}/t/pods/b/eviction", {"metadata": {"name": "a"}})
    assert answer.status == 403
    assert answer.body["message"].startswith('pods "b" is forbidden: unable to create new content')


async def test_the_kernel_of_a_node_is_shown_with_its_architecture(api):
    info = {"kernelVersion": "6.1", "architecture": "arm64"}
    await api.made(NODES, {"metadata": {"name": "a"}, "status": {"nodeInfo": info}})
    await api.made(NODES, {"metadata": {"name": "b"}, "status": {"nodeInfo": {"architecture": "arm64"}}})
    await api.made(NODES, {"metadata": {"name": "c"}})
    rows = (await api.get(NODES, headers={"Accept": f"application/json;{TABLE}"})).body["rows"]
    assert [row["cells"][8] for row in rows] == ["6.1 (arm64)", "<unknown> (arm64)", "<unknown>"]


CURRENT = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"a": "b"}}, "spec": {}}


@pytest.mark.parametrize(("value", "found"), [("[]", "list"), ('{"a":1}', "object"), ("5", "number 5")])
def test_a_json_patch_that_makes_the_kind_no_text_is_refused(value, found):
    body = f'[{{"op":"add","path":"/kind","value":{value}}}]'.encode()
    with pytest.raises(StatusError, match=f"kind: got {found}, expected a string") as error:
        patching.apply(PODS_KIND, patching.JSON_PATCH, CURRENT, body)
    assert error.value.code == 422


def test_an_unknown_directive_is_refused():
    body = b'{"metadata":{"labels":{"$patch":"merge","z":"1"}}}'
    with pytest.raises(StatusError, match=r'\$patch: got string "merge", expected replace or delete'):
        patching.apply(PODS_KIND, patching.STRATEGIC_PATCH, CURRENT, body)


def test_a_generated_name_keeps_within_63_characters():
    made = generate_name("a" * 80)
    assert len(made) == 63
    assert generate_name("web-").startswith("web-")
    assert generate_name("web-") != generate_name("web-")


async def test_of_many_writers_at_once_one_wins_each_round(api):
    made = await api.made(CONFIG_MAPS, config_map(data={"a": "0"}))
    path = f"{CONFIG_MAPS}/c"
    for number in range(5):
        puts = [api("PUT", path, made | {"data": {"a": f"{number}-{i}"}}) for i in range(8)]
        answers = await asyncio.gather(*puts)
        assert sorted(answer.status for answer in answers) == [200] + [409] * 7
        made = (await api.get(path)).body


async def test_the_default_scheduler_is_ours_to_name():
    async with serving(default_scheduler="mine") as api:
        assert (await api.made(PODS, pod()))["spec"]["schedulerName"] == "mine"
        other = await api.made(PODS, pod("q", schedulerName="theirs"))
        assert other["spec"]["schedulerName"] == "theirs"


def secret(name="s", **more):
    return config_map(name, **more) | {"kind": "Secret"}


async def test_a_secret_holds_a_mebibyte(api):
    full = base64.b64encode(bytes(1024 * 1024)).decode()
    await api.made(SECRETS, secret(data={"a": full}))
    answer = await api("POST", SECRETS, secret("t", data={"a": full, "b": "eA=="}))
    assert answer.body["details"]["causes"][0]["reason"] == "FieldValueTooLong"


async def test_secrets_are_selected_by_type_and_listed_as_a_table(api):
    await api.made(SECRETS, secret(type="example.com/a", data={"a": ""}))
    await api.made(SECRETS, secret("t"))
    found = await api.get(f"{SECRETS}?fieldSelector=type%3Dexample.com%2Fa")
    assert [item["metadata"]["name"] for item in found.body["items"]] == ["s"]
    table = await api.get(SECRETS, headers={"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"})
    assert [row["cells"][:3] for row in table.body["rows"]] == [["s", "example.com/a", 1], ["t", "Opaque", 0]]


async def test_a_conflict_names_the_uids(api):
    await api.made(NODES, {"metadata": {"name": "n"}})
    answer = await api("PUT", f"{NODES}/n", {"metadata": {"name": "n", "uid": "other"}})
    assert answer.status == 409
    assert "uid other given" in answer.body["message"]
