"""Preemption step by step, as kube-scheduler 1.36.2 did it on a real kube-apiserver."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from corelane.scheduler.queue.waiting import Backoff
from support import scheduled_cluster
from support.kube_scheduler.stories import NAME, STORIES, Teller, classes, plain

DIFFERENT = (
    # Of kube-scheduler's plugin for resource claims, which corelane leaves pending.
    "no new claims to deallocate, ",
    # corelane tries a nominated pod again when a victim begins to terminate, kube-scheduler does not.
    " preemption: not eligible due to a terminating pod on the nominated node.",
)
"""Parts of messages that differ, as docs/reference/scheduler-differences.md says."""
_WAITS = "Unschedulable: 0/1 nodes are available: 1 Insufficient cpu."
_FULL = "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu."
_EVICTED = {"terminating": "PreemptionByScheduler"}
OURS: dict[tuple[str, int], dict[str, dict[str, str]]] = {
    # A pod of higher priority takes a node whose victims terminate already: with kube-scheduler the other one
    # keeps its nomination until these are gone; with corelane it loses it, and looks elsewhere at once.
    ("a higher pod takes the nomination", 1): {
        "a": {"node": "n1", **_EVICTED},
        "p": {"why": f"{_WAITS} preemption: 0/1 nodes are available: 1 Insufficient cpu."},
        "q": {"nominated": "n1", "why": _WAITS},
    },
    ("two preemptors, two nodes", 1): {
        "a": {"node": "n1", **_EVICTED},
        "b": {"node": "n2", **_EVICTED},
        "p": {"nominated": "n2", "why": _FULL},
        "q": {"nominated": "n1", "why": _FULL},
    },
}
"""States of a story, by their number, that differ: docs/reference/scheduler-differences.md."""
RECORDED = json.loads((Path(__file__).parents[1] / "data/preemption_stories.json").read_text())


def test_every_story_is_recorded() -> None:
    assert RECORDED["version"] == "v1.36.2"
    assert RECORDED["stories"].keys() == STORIES.keys()


@pytest.mark.parametrize("story", STORIES)
async def test_each_step_ends_as_with_kube_scheduler(story: str) -> None:
    want, (nodes, steps), number = RECORDED["stories"][story], STORIES[story], 0
    async with scheduled_cluster.running(name=NAME, backoff=Backoff(0.1, 0.1)) as cluster:
        await classes(cluster.client)
        teller = Teller(cluster.client, 0)
        await teller.begin(nodes)
        for step in steps:
            await teller.do(step)
            if step["do"] not in {"run", "budget"}:
                expected = OURS.get((story, number), want["states"][number])
                assert await _settled(teller, expected) is None
                number += 1
        assert await _equal(teller.events, want["events"], teller) is None


async def _settled(teller: Teller, want: dict[str, Any]) -> object:
    """None once the state is that, and stays; else the state after a while."""
    if different := await _equal(teller.state, want, teller):
        return different
    await asyncio.sleep(0.3)
    return await _equal(teller.state, want, teller, tries=1)


async def _equal(read: Any, want: object, teller: Teller, tries: int = 3000) -> object:
    for _ in range(tries):
        now = _alike(plain(await read(), teller.prefix))
        if now == _alike(want):
            return None
        await asyncio.sleep(0.03)
    return now


def _alike(answer: object) -> object:
    text = json.dumps(answer)
    for part in DIFFERENT:
        text = text.replace(part, "")
    return json.loads(text)
