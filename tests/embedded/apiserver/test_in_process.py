"""Requests from the server's own process are answered as those over HTTP are: HTTP is the oracle."""

import asyncio
import copy
import json
import re
from datetime import UTC, datetime
from functools import partial

import pytest

from corelane.embedded.apiserver.http import server
from corelane.embedded.apiserver.http.auth import ANONYMOUS, User
from corelane.embedded.apiserver.http.in_process import InProcess
from corelane.embedded.apiserver.http.pod_logs import LogUnavailableError
from corelane.embedded.up.cluster import UNSERVED
from corelane.kube.client import APIError, KubeClient
from corelane.kube.connection import Connection, Request
from corelane.kube.objects import Node, PodDisruptionBudget
from corelane.kube.pod import Pod
from corelane.scheduler.daemon.scheduler import Scheduler, SchedulerReporter
from support.apiserver import ADMIN, CONFIG_MAPS, MERGE, PODS, TOKENS, config_map, pod, serving

JSON = {"Content-Type": "application/json"}
REQUESTS = [
    ("GET", CONFIG_MAPS, {}, None, {}),
    ("POST", CONFIG_MAPS, {}, config_map("é" * 3 + "x"), JSON),
    ("POST", CONFIG_MAPS, {"fieldManager": "me"}, config_map("a", data={"k": "1"}), JSON),
    ("POST", CONFIG_MAPS, {}, config_map("a"), JSON),
    ("POST", CONFIG_MAPS, {"dryRun": "All"}, config_map("b"), JSON),
    ("POST", CONFIG_MAPS, {}, config_map("b", unknown=1), JSON),
    ("POST", CONFIG_MAPS, {"fieldValidation": "Strict"}, config_map("c", unknown=1), JSON),
    ("PATCH", f"{CONFIG_MAPS}/a", {}, {"data": {"k": None, "l": "2"}}, MERGE),
    ("PATCH", f"{CONFIG_MAPS}/a", {}, {"data": {}}, {"Content-Type": "text/plain"}),
    ("PATCH", f"{CONFIG_MAPS}/none", {}, {}, MERGE),
    ("GET", CONFIG_MAPS, {"labelSelector": "a in (b, c)", "limit": "1"}, None, {}),
    ("GET", CONFIG_MAPS, {"labelSelector": "a in (b"}, None, {}),
    ("GET", f"{CONFIG_MAPS}/a", {}, None, {"Accept": "application/yaml"}),
    ("GET", f"{CONFIG_MAPS}/a", {}, None, {"Accept": "image/png"}),
    ("GET", CONFIG_MAPS, {}, None, {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}),
    ("POST", PODS, {}, pod("p"), JSON),
    ("POST", PODS, {}, pod("q", restartPolicy="Sometimes"), JSON),
    ("POST", PODS, {}, None, JSON),
    ("GET", f"{PODS}/p/log", {}, None, {}),
    ("GET", f"{PODS}/p/exec", {}, None, {}),
    ("DELETE", f"{PODS}/p", {"gracePeriodSeconds": "0"}, None, {}),
    ("DELETE", f"{CONFIG_MAPS}/a", {}, None, {}),
    ("PUT", CONFIG_MAPS, {}, config_map("a"), JSON),
    ("GET", "/api/v1/namespaces/default/configmaps/a%20b", {}, None, {}),
    ("GET", "/healthz", {}, None, {}),
    ("GET", "/version", {}, None, {}),
    ("GET", "/apis/none", {}, None, {}),
    ("GET", "/none", {}, None, {}),
]
CHANGING = re.compile(
    r'"(uid|creationTimestamp|time|resourceVersion)": ?"[^"]*"'
    r"|uid: [-\w]+|(creationTimestamp|time|resourceVersion): '?[-\w:.]+'?|[01]s\b"
)


def told(status, body):
    """An answer without what differs between two servers."""
    text = CHANGING.sub("", body.decode())
    return status, text


async def over_http(api, method, path, query, body, headers):
    sent = {"Authorization": f"Bearer {ADMIN}", "Accept": "application/json"}
    sent["User-Agent"] = "corelane/1"
    data = None if body is None else json.dumps(body).encode()
    async with api.session.request(
        method, api.server.url + path, params=query, data=data, headers=sent | headers
    ) as response:
        return told(response.status, await response.read())


async def within(transport, method, path, query, body, headers):
    data = None if body is None else json.dumps(body).encode()
    answer = await transport.call(Request(method, path, query, data, headers))
    return told(answer.status, answer.body)


def counts(server):
    """Requests that ended, and those under way, by their labels."""
    metrics = server._metrics
    families = (*metrics._totals.collect(), *metrics._inflight.collect())
    samples = [one for family in families for one in family.samples if not one.name.endswith("_created")]
    return {(one.name, *sorted(one.labels.items())): one.value for one in samples}


async def test_every_answer_is_that_over_http(monkeypatch):
    moment = datetime(2026, 1, 1, tzinfo=UTC)  # one for both: managed fields are ordered by seconds
    monkeypatch.setattr(server, "Backend", partial(server.Backend, now=lambda: moment))
    async with serving() as one, serving() as other:
        transport = InProcess(other.server, TOKENS[ADMIN])
        for request in REQUESTS:
            expected = await over_http(one, *copy.deepcopy(request))
            assert await within(transport, *copy.deepcopy(request)) == expected, request
        assert counts(other.server) == counts(one.server)
        assert one.server._store.revision == other.server._store.revision > 0


async def test_a_user_has_the_rights_that_it_has_over_http(api):
    for user in (ANONYMOUS, User("someone")):
        client = KubeClient(InProcess(api.server, user))
        with pytest.raises(APIError) as refused:
            await client.list(Pod)
        assert (refused.value.code, refused.value.is_status) == (403, True)


async def test_a_watch_follows_changes_and_leaves_nothing_behind(api):
    client = KubeClient(InProcess(api.server, TOKENS[ADMIN]))
    opened = asyncio.Event()
    seen: asyncio.Queue = asyncio.Queue()

    async def follow():
        events = client.watch(Pod, resource_version="0", opened=opened.set)
        async for event in events:
            seen.put_nowait((event.type, event.object.metadata.name if event.object else ""))

    following = asyncio.create_task(follow())
    async with asyncio.timeout(120):
        await opened.wait()
        await api.made(PODS, pod("a"))
        assert await seen.get() == ("ADDED", "a")
        await client.create(pod("b"))
        assert await seen.get() == ("ADDED", "b")
        assert len(api.server._context.watches) == 1
        following.cancel()
        await asyncio.wait([following])
        assert not api.server._context.watches
        assert not api.server._store._shelf("pods").wakers


async def test_a_watch_ends_when_the_server_stops_and_later_requests_are_refused():
    async with asyncio.timeout(120), serving() as api:
        client = KubeClient(InProcess(api.server, TOKENS[ADMIN]))
        opened = asyncio.Event()

        async def follow():
            return [one async for one in client.watch(Pod, resource_version="0", opened=opened.set)]

        following = asyncio.create_task(follow())
        await opened.wait()
        await asyncio.sleep(0)
        await api.server.stop()
        assert await following == []
        with pytest.raises(APIError) as refused:
            await client.list(Pod)
        assert refused.value.code == 503


async def test_other_tasks_run_between_the_requests_of_one(api):
    client, turns = KubeClient(InProcess(api.server, TOKENS[ADMIN])), 0

    async def others():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    for number in range(50):
        await client.create(config_map(f"c-{number}"))
    running.cancel()
    assert turns >= 50


async def test_a_log_is_read_to_its_limit_and_its_source_is_closed(api):
    closed = []

    class Source:
        async def open(self, pod, options):
            if options.previous:
                raise LogUnavailableError("there is none")
            return self.lines()

        async def lines(self):
            try:
                while True:
                    yield b"0123456789"
            finally:
                closed.append(True)

    api.server.log_source = Source()
    await api.made(PODS, pod("p", nodeName="n"))
    for transport in (InProcess(api.server, TOKENS[ADMIN]), Connection.of_server(api.server.url, ADMIN)):
        client = KubeClient(transport)
        assert await client.raw("GET", f"{PODS}/p/log", {"limitBytes": "25"}) == b"0123456789012345678901234"
        with pytest.raises(APIError) as refused:
            await client.raw("GET", f"{PODS}/p/log", {"previous": "true"})
        assert refused.value.code == 500
        await client.close()
    assert closed == [True, True]


class Watches(SchedulerReporter):
    """Kinds that were listed, and those that were not served or whose lists failed."""

    def __init__(self):
        self.kinds, self.missing, self.ready = set(), set(), asyncio.Event()

    def listed(self, kind, objects):
        self.kinds.add(kind)

    def not_served(self, kind):
        self.missing.add(kind)

    def retrying(self, kind, error, seconds):
        self.missing.add(kind)

    def started(self, name):
        self.ready.set()


async def test_the_scheduler_of_up_asks_only_for_kinds_that_are_served(api):
    watches, client = Watches(), KubeClient(InProcess(api.server, TOKENS[ADMIN]))
    scheduler = Scheduler(client, reporter=watches, unserved=UNSERVED)
    running = asyncio.create_task(scheduler.run())
    try:
        await asyncio.wait_for(watches.ready.wait(), 60)
    finally:
        running.cancel()
        await asyncio.wait({running})
        await client.close()
    assert {Node, Pod, PodDisruptionBudget} <= watches.kinds
    assert watches.missing == set()
