"""Secrets: text becomes bytes, types require their entries, immutable ones stay as they are."""

import base64

from support.apiserver import MERGE, config_map

SECRETS = "/api/v1/namespaces/default/secrets"


def encoded(text):
    return base64.b64encode(text.encode()).decode()


def secret(name="s", **more):
    return config_map(name, **more) | {"kind": "Secret"}


async def test_string_data_goes_over_data_and_is_not_shown(api):
    made = await api.made(SECRETS, secret(data={"a": encoded("1"), "b": ""}, stringData={"a": "2", "c": "é"}))
    assert made["data"] == {"a": encoded("2"), "b": "", "c": encoded("é")}
    assert "stringData" not in made
    assert made["type"] == "Opaque"
    patched = await api("PATCH", f"{SECRETS}/s", {"stringData": {"b": "x"}}, headers=MERGE)
    assert patched.body["data"]["b"] == encoded("x")


async def test_types_require_their_entries(api):
    for kind, names in (
        ("kubernetes.io/tls", ["data[tls.crt]", "data[tls.key]"]),
        ("kubernetes.io/basic-auth", ["data[username]", "data[password]"]),
        ("kubernetes.io/ssh-auth", ["data[ssh-privatekey]"]),
        ("kubernetes.io/dockerconfigjson", ["data[.dockerconfigjson]"]),
        ("kubernetes.io/dockercfg", ["data[.dockercfg]"]),
        ("example.com/own", []),
    ):
        answer = await api("POST", SECRETS, secret(kind.replace("/", "-"), type=kind))
        assert answer.status == (422 if names else 201)
        assert [cause["field"] for cause in answer.body.get("details", {}).get("causes", [])] == names


async def test_a_type_cannot_change_and_an_immutable_secret_stays(api):
    await api.made(SECRETS, secret(type="example.com/a", data={"a": ""}))
    changed = await api("PUT", f"{SECRETS}/s", secret(type="example.com/b", data={"a": ""}))
    assert changed.body["details"]["causes"][0]["field"] == "type"
    assert (await api("PATCH", f"{SECRETS}/s", {"immutable": True}, headers=MERGE)).status == 200
    for patch in ({"data": {"a": "eA=="}}, {"immutable": False}, {"stringData": {"b": "1"}}):
        assert (await api("PATCH", f"{SECRETS}/s", patch, headers=MERGE)).status == 422
    assert (
        await api("PATCH", f"{SECRETS}/s", {"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    ).status == 200


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
