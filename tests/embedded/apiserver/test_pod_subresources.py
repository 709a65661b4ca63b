"""Binding, eviction and logs of pods."""

import asyncio

import aiohttp
import pytest

from corelane.embedded.apiserver.http.pod_logs import LogUnavailableError
from corelane.embedded.apiserver.status_errors import bad_request
from support.apiserver import PODS, pod, serving


def binding(name="p", node="n1", **meta):
    return {"metadata": {"name": name, **meta}, "target": {"kind": "Node", "name": node}}


async def test_a_pod_is_bound_once(api):
    await api.made(PODS, pod())
    answers = await asyncio.gather(
        *(api("POST", f"{PODS}/p/binding", binding(node=f"n{number}")) for number in range(5))
    )
    assert sorted(answer.status for answer in answers) == [201, 409, 409, 409, 409]


class Source:
    """A log source that notes what it was asked, and gives lines or an error."""

    def __init__(self, error=None):
        self.asked, self.error, self.closed = [], error, False

    async def open(self, found, options):
        self.asked.append((found["metadata"]["name"], options))
        if self.error:
            raise self.error
        return self.lines(follow=options.follow)

    async def lines(self, *, follow):
        try:
            yield b"first\n"
            yield b"second\n"
            while follow:
                await asyncio.sleep(0.01)
                yield b"more\n"
        finally:
            self.closed = True


def with_logs(source, scenario):
    async def run():
        async with serving(log_source=source) as api:
            await api.made(PODS, pod(nodeName="n1"))
            await scenario(api)

    asyncio.run(run())


def test_a_log_is_streamed_as_text():
    source = Source()

    async def scenario(api):
        query = "tailLines=5&timestamps=true&sinceTime=2026-01-02T03:04:05Z&previous=1"
        answer = await api.get(f"{PODS}/p/log?{query}")
        assert (answer.status, answer.body) == (200, "first\nsecond\n")
        assert answer.headers["Content-Type"] == "text/plain"
        name, options = source.asked[0]
        assert (name, options.container, options.tail_lines) == ("p", "c", 5)
        assert options.timestamps
        assert options.previous
        assert options.since_time.year == 2026

    with_logs(source, scenario)


def test_a_byte_limit_cuts_the_log():
    async def scenario(api):
        assert (await api.get(f"{PODS}/p/log?limitBytes=8")).body == "first\nse"

    with_logs(Source(), scenario)


def test_a_followed_log_ends_with_its_reader():
    source = Source()

    async def scenario(api):
        headers = {"Authorization": "Bearer admintoken"}
        url = f"{api.server.url}{PODS}/p/log?follow=true"
        async with api.session.get(url, headers=headers) as response:
            lines = [await response.content.readline() for _ in range(4)]
            assert lines == [b"first\n", b"second\n", b"more\n", b"more\n"]
        for _ in range(200):
            if source.closed:
                return
            await asyncio.sleep(0.02)
        raise AssertionError("the log source was not closed")

    with_logs(source, scenario)


def test_stopping_the_server_ends_followed_logs():
    source = Source()

    async def scenario(api):
        url, headers = f"{api.server.url}{PODS}/p/log?follow=true", {"Authorization": "Bearer admintoken"}
        async with api.session.get(url, headers=headers) as response:
            await response.content.readline()
            await asyncio.wait_for(api.server.stop(), 60)
        assert source.closed

    with_logs(source, scenario)


@pytest.mark.parametrize(
    ("query", "code", "message"),
    [
        ("container=x", 400, "container x is not valid for pod p"),
        ("tailLines=-1", 422, "must be greater than or equal to 0"),
        ("limitBytes=0", 422, "must be greater than 0"),
        ("sinceSeconds=0", 422, "must be greater than 0"),
        ("sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", 422, "at most one of"),
        ("sinceTime=yesterday", 400, "RFC 3339"),
        ("tailLines=many", 400, "not an integer"),
    ],
)
def test_what_is_wrong_with_a_log_request_is_said(query, code, message):
    async def scenario(api):
        answer = await api.get(f"{PODS}/p/log?{query}")
        assert answer.status == code
        assert message in answer.body["message"]

    with_logs(Source(), scenario)


def test_a_log_that_breaks_off_ends_the_connection():
    """The client must not take what it got for the whole."""

    class Breaking(Source):
        async def lines(self, *, follow):
            yield b"first\n"
            raise LogUnavailableError("node n1 went away")

    async def scenario(api):
        with pytest.raises(aiohttp.ClientPayloadError):
            await api.get(f"{PODS}/p/log")
        assert (await api.get("/readyz")).status == 200

    with_logs(Breaking(), scenario)


async def test_of_several_containers_one_must_be_named(api):
    body = pod(initContainers=[{"name": "i", "image": "img:1"}])
    body["spec"]["containers"].append({"name": "d", "image": "img:1"})
    await api.made(PODS, body)
    answer = await api.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert answer.body["message"] == ("a container name must be specified for pod p, choose one of: c, d, i")


async def test_a_pod_without_a_node_has_no_log(api):
    await api.made(PODS, pod())
    answer = await api.get(f"{PODS}/p/log")
    assert (answer.status, answer.body) == (204, "")
    assert (await api.get(f"{PODS}/none/log")).status == 404


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LogUnavailableError("node n1 does not answer"), 500, "node n1 does not answer"),
        (bad_request('container "c" in pod "p" is waiting to start'), 400, "waiting to start"),
    ],
)
def test_a_log_that_cannot_be_had_says_why(error, code, message):
    async def scenario(api):
        answer = await api.get(f"{PODS}/p/log")
        assert answer.status == code
        assert message in answer.body["message"]

    with_logs(Source(error), scenario)


async def test_a_binding_made_as_an_object_of_its_own_has_no_uid_to_hold_to(api):
    await api.made("/api/v1/namespaces/default/pods", pod())
    target = {"kind": "Node", "name": "n"}
    binding = {"metadata": {"name": "p", "uid": "other"}, "target": target}
    held = await api("POST", "/api/v1/namespaces/default/pods/p/binding", binding)
    assert held.status == 409
    free = await api("POST", "/api/v1/namespaces/default/bindings", binding)
    assert free.status == 201
