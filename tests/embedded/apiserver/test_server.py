"""The server as a program: health, refusals, malformed requests, stopping, restarting."""

import asyncio
import json
import socket
import time

import pytest

from corelane.embedded.apiserver.http import responses
from corelane.embedded.apiserver.http.server import APIServer
from corelane.embedded.apiserver.store.database import FILE_NAME
from corelane.embedded.apiserver.stored_objects import StoreError
from support.apiserver import ADMIN, CONFIG_MAPS, NAMESPACES, TOKENS, VIEWER, config_map, serving


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "example.com", ""])
def test_only_loopback_is_served(host):
    with pytest.raises(ValueError, match="not a loopback address"):
        APIServer(tokens=TOKENS, host=host)


async def test_health_says_ok_and_on_request_why(api):
    for path in ("/healthz", "/livez", "/readyz", "/readyz/ping"):
        answer = await api.get(path)
        assert (answer.status, answer.body) == (200, "ok")
    verbose = await api.get("/readyz?verbose")
    assert verbose.body.startswith("[+]ping ok\n")
    assert verbose.body.endswith("readyz check passed\n")
    assert (await api.get("/healthz/nosuch")).status == 404
    assert (await api("POST", "/healthz")).status == 405
    assert (await api.get("/healthz/")).status == 404


async def test_every_cluster_begins_with_its_namespaces_and_classes(api):
    namespaces = await api.get(NAMESPACES)
    names = [item["metadata"]["name"] for item in namespaces.body["items"]]
    assert names == ["default", "kube-node-lease", "kube-public", "kube-system"]
    classes = await api.get("/apis/scheduling.k8s.io/v1/priorityclasses")
    found = {item["metadata"]["name"]: item["value"] for item in classes.body["items"]}
    assert found == {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


async def test_openapi_is_mounted(api):
    root = await api.get("/openapi/v3")
    path = root.body["paths"]["api/v1"]["serverRelativeURL"]
    assert "/api/v1/namespaces/{namespace}/pods" in (await api.get(path)).body["paths"]
    assert (await api.get("/openapi/v2")).body["swagger"] == "2.0"
    accept = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    url = api.server.url + "/openapi/v2"
    headers = {"Authorization": f"Bearer {ADMIN}", "Accept": accept}
    async with api.session.get(url, headers=headers) as response:
        assert "protobuf" in response.content_type
        assert await response.read()
    assert (await api.get("/openapi/v3/nosuch")).status == 404
    tag = (await api.get(path)).headers["ETag"]
    assert (await api.get(path, headers={"If-None-Match": tag})).status == 304


@pytest.mark.parametrize(
    ("path", "method", "body", "code"),
    [
        (CONFIG_MAPS, "POST", b"{", 400),
        (CONFIG_MAPS, "POST", b"", 400),
        (CONFIG_MAPS, "POST", b"[1]", 400),
        (CONFIG_MAPS, "POST", b'"text"', 400),
        (CONFIG_MAPS, "POST", b"\xff\xfe\x00", 400),
        (CONFIG_MAPS, "POST", b'{"metadata": 5}', 400),
        (CONFIG_MAPS, "POST", b'{"metadata": {"name": ["a"]}}', 400),
        (CONFIG_MAPS, "POST", b"[" * 100_000, 400),
        (CONFIG_MAPS, "POST", b'{"a":' * 50_000, 400),
        (CONFIG_MAPS, "POST", b'{"metadata": {"name": "a\\u0000b"}}', 422),
        (CONFIG_MAPS, "POST", b'{"metadata": {"name": "\\ud800"}}', 422),
        (CONFIG_MAPS, "DELETE", b'{"gracePeriodSeconds": "soon"}', 400),
        (CONFIG_MAPS, "DELETE", b'{"dryRun": "All"}', 400),
        (CONFIG_MAPS, "DELETE", b'{"preconditions": []}', 400),
        (CONFIG_MAPS + "/none", "DELETE", b"[]", 400),
        (CONFIG_MAPS + "/none", "DELETE", b"{}", 404),
        (CONFIG_MAPS + "/none", "PUT", b"{}", 400),
        (CONFIG_MAPS + "?continue=%00", "GET", None, 400),
        (CONFIG_MAPS + "?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOjV9", "GET", None, 400),
        (CONFIG_MAPS + "?watch=1&resourceVersion=-1", "GET", None, 500),
        (CONFIG_MAPS + "?limit=99999999999999999999999", "GET", None, 400),
        (CONFIG_MAPS + "?resourceVersion=99999999999999999999999", "GET", None, 400),
        (CONFIG_MAPS + "?labelSelector=%00", "GET", None, 400),
        (CONFIG_MAPS + "/%00", "GET", None, 404),
        (CONFIG_MAPS + "/a%2Fb", "GET", None, 404),
        (CONFIG_MAPS + "/..%2F..%2Fnodes", "GET", None, 404),
        ("/api/v1/namespaces/default/pods/none/log?tailLines=x", "GET", None, 404),
        ("/%ff%fe", "GET", None, 404),
    ],
)
def test_a_malformed_request_gets_a_status_and_the_server_lives(path, method, body, code, capfd):
    async def run():
        async with serving() as api:
            answer = await api(method, path, data=body, headers={"Content-Type": "application/json"})
            assert answer.status == code, answer.body
            assert (await api.get("/readyz")).body == "ok"

    asyncio.run(run())
    written = capfd.readouterr()
    assert "Traceback" not in written.out + written.err


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"FOO /api HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET /api HTTP/9.9\r\nHost: x\r\n\r\n", 400),
        (b"GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 405),
        (b"GET /api HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n", 400),
        (b"POST /api HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n", 400),
    ],
)
def test_what_is_not_http_gets_a_status_too(sent, code, capfd):
    async def run():
        async with serving() as api:
            host, port = api.server.url.removeprefix("http://").split(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(sent)
            received = await asyncio.wait_for(reader.read(), 120)
            writer.close()
            head, _, body = received.partition(b"\r\n\r\n")
            assert int(head.split()[1]) == code
            assert json.loads(body)["kind"] == "Status"

    asyncio.run(run())
    assert "Traceback" not in capfd.readouterr().err


async def test_a_body_beyond_three_megabytes_is_refused(api):
    big = config_map(data={"k": "x" * (3 * 1024 * 1024)})
    answer = await api("POST", CONFIG_MAPS, big)
    assert (answer.status, answer.body["reason"]) == (413, "RequestEntityTooLarge")


async def test_an_unforeseen_error_is_a_500_without_its_insides(api):
    api.server._context.backend = None
    answer = await api.get(CONFIG_MAPS)
    assert answer.status == 500
    assert answer.body["message"].startswith("Internal error occurred")
    assert "NoneType" not in json.dumps(answer.body)


async def test_kubectl_finds_no_definitions_of_custom_resources(api):
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert (await api.get(path)).body["items"] == []
    assert (await api.get(path, token=VIEWER)).status == 403
    assert (await api.get(f"{path}/x")).status == 404
    assert (await api("POST", path, {})).status == 404


async def test_what_is_left_out_says_so(api):
    for part in ("exec", "attach", "portforward"):
        answer = await api("POST", f"/api/v1/namespaces/default/pods/p/{part}")
        assert answer.status == 501
        assert f"pods/{part} is not served" in answer.body["message"]


APPLIED = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  a: '1'\n  a: '2'\n"
REPEATED = 'duplicate field "data.a"'


async def test_an_applied_configuration_is_yaml_whose_repeated_keys_are_told(api):
    path, yaml = f"{CONFIG_MAPS}/c?fieldManager=me", {"Content-Type": "application/apply-patch+yaml"}
    warned = await api("PATCH", path, data=APPLIED, headers=yaml)
    assert (warned.status, warned.body["data"]) == (201, {"a": "2"})
    strict = await api("PATCH", f"{path}&fieldValidation=Strict", data=APPLIED, headers=yaml)
    assert (strict.status, strict.body["message"].endswith(REPEATED)) == (400, True)
    binary = {"Content-Type": "application/apply-patch+cbor"}
    assert (await api("PATCH", path, data=b"\xa0", headers=binary)).status == 415


async def test_stopping_ends_watches_cleanly_and_at_once():
    async with serving() as api, api.watching(CONFIG_MAPS) as first, api.watching(NAMESPACES) as second:
        await second.take(4)
        began = time.monotonic()
        stopping = asyncio.create_task(api.server.stop())
        assert await first.next() is None
        assert await second.next() is None
        await stopping
        assert time.monotonic() - began < 60


async def test_stopping_does_not_wait_for_clients_that_do_not_read(api):
    for number in range(30):
        await api.made(CONFIG_MAPS, config_map(f"c{number}", data={"k": "x" * 500_000}))
    host, port = api.server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as stuck:
        request = f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
        stuck.sendall(request.encode())
        await asyncio.sleep(0.3)
        began = time.monotonic()
        await api.server.stop()
        assert time.monotonic() - began < 60


async def test_a_reader_that_does_not_read_is_cut_off(api, monkeypatch):
    monkeypatch.setattr(responses, "_WRITE_TIMEOUT", 0.2)
    for number in range(30):
        await api.made(CONFIG_MAPS, config_map(f"c{number}", data={"k": "x" * 500_000}))
    host, port = api.server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as stuck:
        head = f"GET {CONFIG_MAPS}?watch=1 HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {ADMIN}\r\n\r\n"
        stuck.sendall(head.encode())
        watches = api.server._context.watches
        for state in (True, False):
            async with asyncio.timeout(120):
                while bool(watches) is not state:
                    await asyncio.sleep(0.02)


async def test_a_restart_resumes_objects_and_watches(tmp_path):
    async with serving(data_dir=tmp_path) as api:
        made = await api.made(CONFIG_MAPS, config_map("kept", data={"a": "1"}))
        since = made["metadata"]["resourceVersion"]
        await api.made(CONFIG_MAPS, config_map("later"))
    async with serving(data_dir=tmp_path) as api:
        kept = await api.get(f"{CONFIG_MAPS}/kept")
        assert kept.body == made
        async with api.watching(CONFIG_MAPS, resourceVersion=since) as stream:
            assert await stream.seen(1) == [("ADDED", "later")]
        namespaces = await api.get(NAMESPACES)
        assert len(namespaces.body["items"]) == 4


def test_a_broken_state_file_is_one_clear_error(tmp_path):
    (tmp_path / FILE_NAME).write_text("not SQLite at all" * 100)
    with pytest.raises(StoreError, match=FILE_NAME):
        asyncio.run(APIServer(data_dir=tmp_path, tokens=TOKENS).start())


async def test_a_taken_port_leaves_nothing_behind(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        server = APIServer(data_dir=tmp_path, tokens=TOKENS, port=taken.getsockname()[1])
        with pytest.raises(OSError, match="address already in use"):
            await server.start()
    async with serving(data_dir=tmp_path) as api:
        assert (await api.get("/readyz")).status == 200


async def test_a_client_that_waits_with_its_body_is_asked_for_it(api):
    body = b'{"metadata":{"name":"waited"}}'
    host, port = api.server.url.removeprefix("http://").split(":")

    async def send(token):
        reader, writer = await asyncio.open_connection(host, int(port))
        head = (
            "POST /api/v1/namespaces HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n"
            f"Authorization: Bearer {token}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        writer.write(head.encode())
        return reader, writer

    async with asyncio.timeout(120):
        reader, writer = await send(ADMIN)
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        assert await reader.readline() == b"\r\n"
        writer.write(body)
        assert await reader.readline() == b"HTTP/1.1 201 Created\r\n"
        writer.close()
        reader, writer = await send("wrong")
        assert await reader.readline() == b"HTTP/1.1 401 Unauthorized\r\n"
        writer.close()


@pytest.mark.parametrize("token", [ADMIN, VIEWER])
@pytest.mark.parametrize(
    "header", ["Impersonate-User", "impersonate-group", "Impersonate-Uid", "Impersonate-Extra-scopes"]
)
async def test_a_request_as_another_user_is_refused_and_nothing_is_done(api, token, header):
    answer = await api("POST", CONFIG_MAPS, config_map(), headers={header: "x"}, token=token)
    assert (answer.status, answer.body["reason"]) == (403, "Forbidden")
    assert "does not serve impersonation" in answer.body["message"]
    assert (await api.get(f"{CONFIG_MAPS}/c")).status == 404
    for path in ("/version", "/openapi/v2", CONFIG_MAPS):
        assert (await api.get(path, headers={header: "x"}, token=token)).status == 403
