"""`corelane up` that is allowed fewer CPUs than in its last life: what runs stays, the rest is reported."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from corelane.kube.client import KubeClient
from corelane.kube.objects import Event
from support.up import FOREVER, Up, clear, container, is_alive, pod
from support.up_pods import pids, ready

ARGS = ("--node-name", "here", "--cgroups", "auto")
PODS = (
    pod("lane", container("c", FOREVER, "1")),
    pod("first", container("c", FOREVER, "400m")),
    pod("second", container("c", FOREVER, "300m")),
)


async def _create(client: KubeClient) -> None:
    for manifest in PODS:
        await client.create(manifest)


async def _messages(client: KubeClient, reason: str = "LedgerChanged") -> list[str]:
    return [event.message for event in (await client.list(Event)).items if event.reason == reason]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU: it cannot become fewer")
@pytest.mark.parametrize("ledger", ["kept", "lost"])
def test_running_pods_are_kept_and_excess_requests_reported(tmp_path: Path, ledger: str) -> None:
    data, before = tmp_path / "data", os.sched_getaffinity(0)
    two = set(sorted(before)[:2])
    try:
        os.sched_setaffinity(0, two)
        first = Up(data, *ARGS)
        first.call(_create)
        ready(first, "lane", "first", "second")
        running = pids(data)
        first.kill()
        if ledger == "lost":
            (data / "nodes" / "here" / "ledger.json").unlink()
        os.sched_setaffinity(0, {min(two)})
        second = Up(data, *ARGS)
        try:
            ready(second, "lane", "first", "second")
            assert pids(data) == running
            assert all(map(is_alive, running.values()))
            (excess,) = second.until(_excess, "requests that do not fit are reported")
            assert excess.startswith("pods of the ledger request 1700m CPU, 1000m are allocatable")
        finally:
            second.kill()
    finally:
        os.sched_setaffinity(0, before)
        clear(data)


async def _excess(client: KubeClient) -> list[str]:
    return [text for text in await _messages(client) if "allocatable" in text]
