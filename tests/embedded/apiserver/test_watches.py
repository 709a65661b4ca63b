"""Watches: where they begin, what enters and leaves, bookmarks, and clients that fall behind."""

import asyncio
import json

import pytest

from corelane.embedded.apiserver.api_requests import list_options, parse
from corelane.embedded.apiserver.codec import wire
from corelane.embedded.apiserver.store.database import Store
from corelane.embedded.apiserver.store.lists_and_watches import WatchStream
from corelane.embedded.apiserver.store.server_backend import Backend, describe
from support.apiserver import CONFIG_MAPS, config_map


async def revision(api, path=CONFIG_MAPS):
    return (await api.get(path)).body["metadata"]["resourceVersion"]


async def test_a_timeout_ends_the_watch_with_how_far_it_came(api):
    async with api.watching(CONFIG_MAPS, timeoutSeconds=1, allowWatchBookmarks="true") as stream:
        last = await stream.next()
        assert last["type"] == "BOOKMARK"
        assert last["object"]["metadata"]["resourceVersion"] == await revision(api)
        assert await stream.next() is None
    async with api.watching(CONFIG_MAPS, timeoutSeconds=1) as stream:
        assert await stream.next() is None


@pytest.mark.parametrize("since", ["1", "999999999"])
async def test_a_revision_before_the_window_or_from_the_future_is_410(api, since):
    """One from the future was given by a server whose state is gone: its client must list again."""
    backend = api.server._context.backend
    fill(backend, 10_100 if since == "1" else 2)
    async with api.watching(CONFIG_MAPS, resourceVersion=since) as stream:
        event = await stream.next()
        assert event["type"] == "ERROR"
        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
        assert await stream.next() is None
    first = backend.store.floor("configmaps") or backend.store.revision - 1
    async with api.watching(CONFIG_MAPS, resourceVersion=first) as stream:
        assert (await stream.next())["type"] == "MODIFIED"


def fill(backend, count):
    obj = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "c", "namespace": "default"}}
    for number in range(count):
        backend.store.put("configmaps", "default/c", obj | {"data": {"n": str(number)}})


def small(window=10_000):
    return Backend(Store(None, describe, window), "s")


def watch(backend, query=None, **settings):
    target = parse(CONFIG_MAPS, "GET", {"watch": "1"})
    view = wire.View(target.kind, "v1")
    return WatchStream(backend, target, view, list_options(query or {}, watch=True), **settings)


def lines(chunk):
    return [json.loads(line) for line in chunk.splitlines()]


async def test_a_client_that_falls_out_of_the_window_is_told_so():
    backend = small(window=10)
    fill(backend, 1)
    frames = watch(backend, {"resourceVersion": "1"}).frames()
    fill(backend, 3)
    assert len(lines(await anext(frames))) == 3
    fill(backend, 20)
    event = lines(await anext(frames))[0]
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    with pytest.raises(StopAsyncIteration):
        await anext(frames)


async def test_bookmarks_come_regularly_to_those_who_asked():
    backend = small()
    fill(backend, 3)
    query = {"resourceVersion": "3", "allowWatchBookmarks": "true"}
    frames = watch(backend, query, bookmark_period=0.05).frames()
    backend.store.put("namespaces", "x", {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "x"}})
    found = [lines(await asyncio.wait_for(anext(frames), 120))[0] for _ in range(2)]
    assert [event["type"] for event in found] == ["BOOKMARK", "BOOKMARK"]
    assert found[0]["object"]["metadata"]["resourceVersion"] == "4"
    await frames.aclose()


async def test_watchers_with_the_same_view_share_the_bytes_of_an_event():
    backend = small()
    fill(backend, 1)
    streams = [watch(backend, {"resourceVersion": "1"}).frames() for _ in range(3)]
    fill(backend, 1)
    chunks = [await anext(stream) for stream in streams]
    event = backend.store.events("configmaps", 1)[0]
    assert len(event.frames) == 1
    assert set(chunks) == set(event.frames.values())
    for stream in streams:
        await stream.aclose()


async def test_a_watch_that_ends_leaves_no_waker_behind(api):
    async with api.watching(CONFIG_MAPS):
        pass
    await api.made(CONFIG_MAPS, config_map())
    context = api.server._context
    for _ in range(100):
        if not context.watches:
            break
        await asyncio.sleep(0.02)
    assert not context.watches


async def test_a_watch_without_bookmarks_sleeps_through_their_period():
    backend = small()
    fill(backend, 1)
    asked = []
    events = backend.store.events

    def counted(*given):
        asked.append(given)
        return events(*given)

    backend.store.events = counted
    frames = watch(backend, {"resourceVersion": "1"}, bookmark_period=0.01).frames()
    waiting = asyncio.ensure_future(anext(frames))
    await asyncio.sleep(0.2)
    assert len(asked) == 1
    fill(backend, 1)
    assert len(lines(await waiting)) == 1
    assert len(asked) == 2
    await frames.aclose()
