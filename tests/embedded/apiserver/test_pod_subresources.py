"""Binding, eviction and logs of pods."""

import asyncio

import aiohttp
import pytest

from corelane.embedded.apiserver.http.pod_logs import LogUnavailableError
from corelane.embedded.apiserver.status_errors import bad_request
from support.apiserver import PODS, pod


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


async def logging_to(api, source):
    """Have the server read logs of a bound pod from this source."""
    api.server.log_source = source
    await api.made(PODS, pod(nodeName="n1"))


async def test_a_log_is_streamed_as_text(api):
    source = Source()
    await logging_to(api, source)
    query = "tailLines=5&timestamps=true&sinceTime=2026-01-02T03:04:05Z&previous=1"
    answer = await api.get(f"{PODS}/p/log?{query}")
    assert (answer.status, answer.body) == (200, "first\nsecond\n")
    assert answer.headers["Content-Type"] == "text/plain"
    name, options = source.asked[0]
    assert (name, options.container, options.tail_lines) == ("p", "c", 5)
    assert options.timestamps
    assert options.previous
    assert options.since_time.year == 2026


async def test_a_followed_log_ends_with_its_reader(api):
    source = Source()
    await logging_to(api, source)
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


async def test_stopping_the_server_ends_followed_logs(api):
    source = Source()
    await logging_to(api, source)
    url, headers = f"{api.server.url}{PODS}/p/log?follow=true", {"Authorization": "Bearer admintoken"}
    async with api.session.get(url, headers=headers) as response:
        await response.content.readline()
        await asyncio.wait_for(api.server.stop(), 60)
    assert source.closed


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
async def test_what_is_wrong_with_a_log_request_is_said(api, query, code, message):
    await logging_to(api, Source())
    answer = await api.get(f"{PODS}/p/log?{query}")
    assert answer.status == code
    assert message in answer.body["message"]


async def test_a_log_that_breaks_off_ends_the_connection(api):
    """The client must not take what it got for the whole."""

    class Breaking(Source):
        async def lines(self, *, follow):
            yield b"first\n"
            raise LogUnavailableError("node n1 went away")

    await logging_to(api, Breaking())
    with pytest.raises(aiohttp.ClientPayloadError):
        await api.get(f"{PODS}/p/log")
    assert (await api.get("/readyz")).status == 200


async def test_of_several_containers_one_must_be_named(api):
    body = pod(initContainers=[{"name": "i", "image": "img:1"}])
    body["spec"]["containers"].append({"name": "d", "image": "img:1"})
    await api.made(PODS, body)
    answer = await api.get(f"{PODS}/p/log")
    assert answer.status == 400
    assert answer.body["message"] == ("a container name must be specified for pod p, choose one of: c, d, i")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (LogUnavailableError("node n1 does not answer"), 500, "node n1 does not answer"),
        (bad_request('container "c" in pod "p" is waiting to start'), 400, "waiting to start"),
    ],
)
async def test_a_log_that_cannot_be_had_says_why(api, error, code, message):
    await logging_to(api, Source(error))
    answer = await api.get(f"{PODS}/p/log")
    assert answer.status == code
    assert message in answer.body["message"]
