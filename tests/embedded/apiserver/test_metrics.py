"""`/metrics` counts what was answered, in Prometheus' text format."""

import asyncio
import re

import pytest

from support.apiserver import CONFIG_MAPS, VIEWER, config_map

LINE = re.compile(r"([a-z_]+)(?:\{(.*)\})? ([0-9.e+-]+|\+Inf)")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


async def scraped(api):
    answer = await api.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    found = []
    for line in answer.body.splitlines():
        if not line.startswith("#"):
            name, labels, value = LINE.fullmatch(line).groups()
            found.append((name, dict(LABEL.findall(labels or "")), float(value)))
    return found


def value(found, name, **wanted):
    """The sum of a metric's samples with these labels."""
    return sum(v for n, labels, v in found if n == name and wanted.items() <= labels.items())


async def test_requests_are_counted_by_verb_resource_and_code(api):
    await api.made(CONFIG_MAPS, config_map("a"))
    await api("POST", CONFIG_MAPS, config_map("a"))
    await api.get(f"{CONFIG_MAPS}/a")
    await api.get(f"{CONFIG_MAPS}/none")
    await api.get(CONFIG_MAPS)
    await api.get("/api/v1/configmaps")
    await api.get("/nosuch/path")
    await api("DELETE", CONFIG_MAPS)
    found = await scraped(api)
    total = "apiserver_request_total"
    maps = {"resource": "configmaps", "version": "v1", "group": ""}
    assert value(found, total, verb="POST", code="201", scope="namespace", **maps) == 1
    assert value(found, total, verb="POST", code="409", **maps) == 1
    assert value(found, total, verb="GET", code="200", scope="resource", **maps) == 1
    assert value(found, total, verb="GET", code="404", **maps) == 1
    assert value(found, total, verb="LIST", scope="namespace", **maps) == 1
    assert value(found, total, verb="LIST", scope="cluster", **maps) == 1
    assert value(found, total, verb="DELETECOLLECTION", code="200", **maps) == 1
    assert "nosuch" not in str(found)
    durations = "apiserver_request_duration_seconds"
    assert value(found, f"{durations}_count") == value(found, total)
    assert value(found, f"{durations}_bucket", le="+Inf") == value(found, total)
    assert value(found, f"{durations}_bucket", le="60") <= value(found, total)
    assert value(found, f"{durations}_sum") > 0


async def test_what_is_stored_and_watched_is_shown(api):
    before = await scraped(api)
    await api.made(CONFIG_MAPS, config_map("a"))
    async with api.watching(CONFIG_MAPS):
        found = await scraped(api)
        assert value(found, "apiserver_longrunning_requests") == 1
    assert value(before, "apiserver_longrunning_requests") == 0
    assert value(found, "apiserver_storage_objects", resource="configmaps") == 1
    assert value(found, "apiserver_storage_objects", resource="namespaces") == 4
    assert value(found, "apiserver_current_inflight_requests") == 1
    for _ in range(200):
        found = await scraped(api)
        if value(found, "apiserver_request_total", verb="WATCH") == 1:
            return
        await asyncio.sleep(0.01)
    pytest.fail("the watch that ended is not counted")


async def test_the_process_is_described(api):
    found = await scraped(api)
    for name in ("cpu_seconds_total", "resident_memory_bytes", "virtual_memory_bytes", "open_fds", "max_fds"):
        assert value(found, f"process_{name}") > 0
    assert 1.6e9 < value(found, "process_start_time_seconds") < 1e11


async def test_metrics_are_for_administrators(api):
    assert (await api.get("/metrics", token=VIEWER)).status == 403
    assert (await api.get("/metrics", token=None)).status == 403
