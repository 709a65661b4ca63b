import asyncio
import json
import resource
import zlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from corelane.kube import connection
from corelane.kube.apierrors import TooLong
from corelane.kube.client import APIError, Gone, KubeClient, MalformedObject, Unreachable
from corelane.kube.connection import _Pool
from corelane.kube.decode import WatchEvent
from corelane.kube.kubeconfig import ClusterForm, ServerConfig, UserForm
from corelane.kube.objects import Node
from corelane.kube.pod import Pod
from corelane.kube.translate.crane import CraneTopology
from support.fake_api import (
    Fake,
    answer,
    event,
    failure,
    listing,
    pod,
    serving,
    watching,
)

PODS = "/api/v1/pods"
WATCH = f"{PODS}?watch"


def run(story: Callable[[Fake, KubeClient], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(120), serving() as (fake, client):
            await story(fake, client)

    asyncio.run(main())


async def follow(client: KubeClient, version: str = "1", **more: Any) -> list[WatchEvent[Pod]]:
    return [event async for event in client.watch(Pod, resource_version=version, **more)]


def test_a_list_goes_through_all_pages() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[PODS] = [
            listing(pod("a"), version="5", continuation="c&1"),
            listing(pod("b"), version="5"),
        ]
        listed = await client.list(
            Pod, label_selector="app in (a,b)", field_selector="spec.nodeName=", page=1
        )
        assert [item.metadata.name for item in listed.items] == ["a", "b"]
        assert listed.resource_version == "5"
        asked = [dict(request.query) for request in fake.seen]
        selection = {"labelSelector": "app in (a,b)", "fieldSelector": "spec.nodeName=", "limit": "1"}
        assert asked == [selection, selection | {"continue": "c&1"}]

    run(story)


def test_a_list_from_the_cache_names_no_version_where_it_is_continued() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[PODS] = [listing(pod("a"), continuation="c"), listing(pod("b"))]
        assert len((await client.list(Pod, page=1, cached=True)).items) == 2
        asked = [dict(request.query) for request in fake.seen]
        assert asked == [{"limit": "1", "resourceVersion": "0"}, {"limit": "1", "continue": "c"}]

    run(story)


def test_a_list_that_expires_between_pages_is_begun_anew_in_one_piece() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[PODS] = [
            listing(pod("stale"), continuation="c"),
            failure(410, "Expired", "The provided continue parameter is too old"),
            listing(pod("a"), pod("b"), version="9"),
        ]
        listed = await client.list(Pod, page=1)
        assert [item.metadata.name for item in listed.items] == ["a", "b"]
        assert "limit" not in fake.seen[-1].query

    run(story)


def test_malformed_objects_of_every_page_are_reported_and_left_out() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        bad = pod("bad", containers={"no": "list"})
        fake.script[PODS] = [listing(bad, pod("a"), continuation="c"), listing({"metadata": []}, pod("b"))]
        listed = await client.list(Pod)
        assert [item.metadata.name for item in listed.items] == ["a", "b"]
        assert [m.name for m in listed.malformed] == ["bad", ""]

    run(story)


def test_a_status_becomes_an_error_with_its_own_words() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script["/api/v1/nodes/n"] = [failure(429, "TooManyRequests", "slow down", retryAfterSeconds=3)]
        with pytest.raises(APIError) as caught:
            await client.get(Node, "n")
        error = caught.value
        assert (error.code, error.reason, error.message) == (429, "TooManyRequests", "slow down")
        assert error.retry_after == 3
        assert str(error) == "slow down (429 TooManyRequests)"

    run(story)


@pytest.mark.parametrize(
    ("header", "details", "seconds"),
    [("7", {}, 7), ("Wed, 21 Oct 2026 07:28:00 GMT", {}, 0), ("99999999999999", {}, 0), ("3600", {}, 60),
     ("-5", {"retryAfterSeconds": -3}, 0), ("1", {"retryAfterSeconds": True}, 1),
     ("", {"retryAfterSeconds": 4}, 4)],
)  # fmt: skip
def test_a_wait_that_the_server_asks_for_is_read_from_header_or_status(
    header: str, details: dict[str, Any], seconds: int
) -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": 429, "details": details}
        return web.json_response(body, status=429, headers={"Retry-After": header})

    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script["/api/v1/nodes/n"] = [refuse]
        with pytest.raises(APIError) as caught:
            await client.get(Node, "n")
        assert caught.value.retry_after == seconds

    run(story)


@pytest.mark.parametrize("code", ["x", None, 200, [1]])
def test_the_code_of_the_answer_counts_not_the_one_in_its_body(code: object) -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script["/api/v1/nodes/n"] = [answer({"kind": "Status", "code": code}, status=503)]
        with pytest.raises(APIError) as caught:
            await client.get(Node, "n")
        assert (caught.value.code, caught.value.is_status) == (503, True)

    run(story)


@pytest.mark.parametrize(
    ("body", "status"),
    [(b"<html>log in", 200), (b"{}", 200), (b"", 201), (b'{"kind":"Status","status":"Failure"}', 201),
     (b'{"kind":"Status","status":"Success"}', 302)],
)  # fmt: skip
def test_a_binding_without_the_servers_status_has_no_known_outcome(body: bytes, status: int) -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script["/api/v1/namespaces/ns/pods/a/binding"] = [answer(body, status)]
        with pytest.raises(MalformedObject, match="the outcome is unknown"):
            await client.bind("ns", "a", "uid", "n")

    run(story)


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b'"text"', b'{"kind": "Status"}'])
def test_an_error_without_a_status_is_described_by_the_request(body: bytes) -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script["/api/v1/nodes/n"] = [answer(body, 502, "text/html")]
        with pytest.raises(APIError, match=r"GET /api/v1/nodes/n: 502 Bad Gateway"):
            await client.get(Node, "n")

    run(story)


def test_a_malformed_answer_is_an_error_of_its_own() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script["/api/v1/nodes/n"] = [answer({"metadata": {"name": "n"}, "status": {"capacity": [1]}})]
        with pytest.raises(MalformedObject, match="Node n is malformed"):
            await client.get(Node, "n")
        fake.script[PODS] = [answer(b"[]")]
        with pytest.raises(MalformedObject, match="not a list of pods"):
            await client.list(Pod)

    run(story)


def test_no_answer_is_unreachable() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[PODS] = [watching(b'{"items": [', then="cut")]
        with pytest.raises(Unreachable, match="GET /api/v1/pods: no whole answer"):
            await client.list(Pod)

    run(story)


def test_a_refused_connection_is_unreachable() -> None:
    async def main() -> None:
        async with serving() as (fake, _):
            url = fake.url
        client = KubeClient.connect_to(url)
        with pytest.raises(Unreachable):
            await client.get(Node, "n")
        await client.close()

    asyncio.run(main())


def test_a_watch_reads_events_of_any_length_and_bookmarks_of_any_shape() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        long = pod("long", "3")
        long["metadata"]["annotations"] = {"x": "y" * 1_200_000}
        bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "9"}, "spec": {"containers": None}}
        whole = event("ADDED", pod("a", "2")) + event("MODIFIED", long) + b"\n" + event("BOOKMARK", bookmark)
        pieces = [whole[i : i + 70_001] for i in range(0, len(whole), 70_001)]
        fake.script[WATCH] = [watching(*pieces, then="end")]
        added, modified, marked = await follow(client)
        assert added.object is not None
        assert (added.type, added.object.metadata.name, added.resource_version) == ("ADDED", "a", "2")
        assert modified.object is not None
        assert len(modified.object.metadata.annotations["x"]) == 1_200_000
        assert (marked.type, marked.object, marked.resource_version) == ("BOOKMARK", None, "9")
        query = fake.seen[0].query
        assert query["allowWatchBookmarks"] == "true"
        assert query["resourceVersion"] == "1"
        assert int(query["timeoutSeconds"]) > 60

    run(story)


def test_a_watch_reports_an_object_that_cannot_be_read_and_goes_on() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        bad = event("MODIFIED", pod("bad", "4", containers=7))
        fake.script[WATCH] = [watching(bad, event("ADDED", pod("a", "5")), then="end")]
        first, second = await follow(client)
        assert first.object is None
        assert first.malformed is not None
        assert first.malformed.key == ("ns", "bad")
        assert first.resource_version == "4"
        assert second.object is not None

    run(story)


def test_a_watch_from_a_version_no_longer_kept_is_gone() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        fake.script[WATCH] = [failure(410, "Expired", "too old"), watching(event("ERROR", expired))]
        for _ in range(2):
            with pytest.raises(Gone, match="too old"):
                await follow(client)

    run(story)


def test_an_error_event_without_a_status_is_an_error() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[WATCH] = [watching(event("ERROR", None))]
        with pytest.raises(APIError, match="watch of pods failed"):
            await follow(client)

    run(story)


@pytest.mark.parametrize("then", ["cut", "end"])
def test_a_watch_cut_within_a_line_is_unreachable_after_the_whole_lines(then: str) -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        half = event("MODIFIED", pod("a", "3"))[:40]
        fake.script[WATCH] = [watching(event("ADDED", pod("a", "2")), half, then=then)]
        seen = []
        with pytest.raises(Unreachable):
            async for one in client.watch(Pod, resource_version="1"):
                seen.append(one.resource_version)  # noqa: PERF401 - what came before the error counts
        assert seen == ["2"]

    run(story)


def test_a_line_that_is_no_event_is_unreachable() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[WATCH] = [watching(b"<html>\n")]
        with pytest.raises(Unreachable, match="not an event"):
            await follow(client)

    run(story)


def test_a_silent_watch_is_given_up() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[WATCH] = [watching(event("ADDED", pod("a")), then="hang")]
        with pytest.raises(Unreachable, match="Timeout on reading"):
            await follow(client, quiet_seconds=0.2)

    run(story)


def test_writes_go_where_they_belong() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        base = "/api/v1/namespaces/ns/pods"
        for path in (base, f"{base}/a", f"{base}/a/status", f"{base}/a/binding"):
            fake.script[path] = [answer({"kind": "Status", "status": "Success"})]
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": "x"}}
        fake.script["/apis/coordination.k8s.io/v1/namespaces/x/leases"] = [answer(lease)]
        assert await client.create(lease) == lease
        await client.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "ns"}})
        await client.patch(
            Pod, "a", {"status": {}}, namespace="ns", kind_of_patch="strategic", subresource="status"
        )
        await client.patch(Pod, "a", [{"op": "test"}], namespace="ns", kind_of_patch="json")
        await client.delete(Pod, "a", namespace="ns", grace_seconds=0, uid="u")
        await client.bind("ns", "a", "u", "node", {"k": "v"})
        did = [(r.method, r.path, r.content_type) for r in fake.seen]
        assert did[1:] == [
            ("POST", base, "application/json"),
            ("PATCH", f"{base}/a/status", "application/strategic-merge-patch+json"),
            ("PATCH", f"{base}/a", "application/json-patch+json"),
            ("DELETE", f"{base}/a", "application/json"),
            ("POST", f"{base}/a/binding", "application/json"),
        ]
        deletion, binding = map(json.loads, fake.bodies[-2:])
        assert deletion["gracePeriodSeconds"] == 0
        assert deletion["preconditions"] == {"uid": "u"}
        assert binding["metadata"] == {
            "namespace": "ns",
            "name": "a",
            "uid": "u",
            "annotations": {"k": "v"},
            "labels": {},
        }
        assert binding["target"] == {"apiVersion": "v1", "kind": "Node", "name": "node"}

    run(story)


def test_gocranes_objects_are_read_and_never_written() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        path = CraneTopology.api.path(name="n")
        fake.script[path] = [answer({"metadata": {"name": "n"}, "zones": [{"name": "node0"}]})]
        assert (await client.get(CraneTopology, "n")).zones[0].name == "node0"
        body = {"apiVersion": CraneTopology.api.api_version, "kind": "NodeResourceTopology"}
        for write in (
            lambda: client.create(body),
            lambda: client.patch(CraneTopology, "n", {}),
            lambda: client.delete(CraneTopology, "n"),
        ):
            with pytest.raises(
                ValueError, match=r"topology.crane.io/v1alpha1.*not a kind that corelane writes"
            ):
                await write()
        assert [request.method for request in fake.seen] == ["GET"]

    run(story)


def test_a_kind_we_do_not_write_is_refused() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        with pytest.raises(ValueError, match="kind 'Pancake': not a kind that corelane writes"):
            await client.create({"apiVersion": "v1", "kind": "Pancake"})

    run(story)


def kubeconfig(path: Path, server: str, name: str = "here", current: str | None = "here") -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": name, "cluster": {"server": server}}],
        "users": [{"name": name, "user": {"token": f"token-{name}"}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
        **({"current-context": current} if current else {}),
    }
    path.write_text(json.dumps(config))
    return path


async def token_sent(fake: Fake, client: KubeClient) -> str:
    fake.script["/api/v1/nodes/n"] = [answer({"metadata": {"name": "n"}})]
    await client.get(Node, "n")
    await client.close()
    return fake.seen[-1].headers["Authorization"]


def test_the_cluster_is_found_as_kubectl_finds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(fake: Fake, _: KubeClient) -> None:
        home = tmp_path / ".kube" / "config"
        home.parent.mkdir()
        kubeconfig(home, fake.url, "home", "home")
        named = kubeconfig(tmp_path / "named", fake.url, "named", "named")
        other = kubeconfig(tmp_path / "other", fake.url, "other", None)
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
        monkeypatch.delenv("KUBECONFIG", raising=False)
        assert await token_sent(fake, KubeClient.connect()) == "Bearer token-home"
        monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/absent:{other}:{named}")
        assert await token_sent(fake, KubeClient.connect()) == "Bearer token-named"
        assert await token_sent(fake, KubeClient.connect(context="other")) == "Bearer token-other"
        assert await token_sent(fake, KubeClient.connect(home)) == "Bearer token-home"

    run(story)


def test_a_pods_service_account_is_the_last_resort(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    with pytest.raises(ValueError, match=r"cannot connect to a cluster: .*serviceaccount"):
        KubeClient.connect()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (None, "no such file; give a kubeconfig that exists"),
        ("{", "not a kubeconfig"),
        ("[]", "not a kubeconfig"),
        ("{}", "no current-context"),
        ('{"clusters": 3, "contexts": [], "users": []}', "not a kubeconfig"),
        ('{"clusters": [], "contexts": [], "users": []}', "no current-context"),
        ('{"clusters": [], "contexts": [], "current-context": "x"}', "no context 'x'"),
        (
            '{"clusters":[], "current-context":"x", "contexts": [{"name":"x", "context":{"cluster":"y"}}]}',
            "context 'x' names 'y', which does not exist",
        ),
    ],
)
def test_a_bad_kubeconfig_gets_one_clear_error(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "config"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ValueError, match="cannot connect to a cluster") as caught:
        KubeClient.connect(path)
    assert why in str(caught.value)
    assert str(path) in str(caught.value)


def test_answers_within_the_machine_are_not_compressed() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[PODS] = [listing(pod("a"))]
        await client.list(Pod)
        assert fake.seen[-1].headers["Accept-Encoding"] == "identity"

    run(story)


@pytest.mark.parametrize("address", ["https://10.0.0.1:6443", "https://cluster.example"])
def test_answers_of_other_machines_may_be_compressed(address: str) -> None:
    async def main() -> None:
        pool = _Pool(ServerConfig(ClusterForm(server=address), UserForm()))
        async with pool._new_session() as session:
            assert "Accept-Encoding" not in session.headers, "aiohttp asks for gzip then"

    asyncio.run(main())


def test_a_list_whose_pages_never_end_is_an_error() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[PODS] = [listing(continuation="again")] * 200
        with pytest.raises(MalformedObject, match="does not end"):
            await client.list(Pod)

    run(story)


@pytest.mark.parametrize(("zipped", "cached"), [(False, False), (True, False), (False, True)])
def test_a_page_that_is_too_long_is_read_in_smaller_ones(monkeypatch, zipped: bool, cached: bool) -> None:
    monkeypatch.setattr(connection, "_LONGEST_ANSWER", 1 << 20)

    async def respond(request: web.Request) -> web.Response:
        items = [pod(f"p{number}") for number in range(int(request.query["limit"]))]
        items[0]["metadata"]["annotations"] = {"a": "x" * 8000 * len(items)}
        response = web.json_response({"metadata": {"resourceVersion": "3"}, "items": items})
        if zipped:
            response.enable_compression(web.ContentCoding.gzip)
        return response

    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script[PODS] = [respond] * 3
        assert len((await client.list(Pod, cached=cached)).items) == 125
        asked = [(request.query["limit"], request.query.get("resourceVersion")) for request in fake.seen]
        assert asked == [("500", "0")] * cached + [("500", None), ("125", None)]

    run(story)


def test_an_answer_that_inflates_without_end_is_an_error_and_not_kept() -> None:
    packer, piece = zlib.compressobj(9, zlib.DEFLATED, 31), b" " * (1 << 20)
    bomb = b"".join(packer.compress(piece) for _ in range(512)) + packer.flush()

    async def respond(_: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    async def story(fake: Fake, client: KubeClient) -> None:
        fake.script["/api/v1/pods/x"] = [respond]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(TooLong, match="128 MiB"):
            await client.raw("GET", "/api/v1/pods/x")
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10

    run(story)


def test_a_redirect_is_an_error() -> None:
    async def story(fake: Fake, client: KubeClient) -> None:
        moved = answer({}, status=301)
        fake.script[PODS] = [moved]
        fake.script[WATCH] = [moved]
        with pytest.raises(APIError, match="301"):
            await client.list(Pod)
        with pytest.raises(APIError, match="301"):
            await follow(client)

    run(story)
