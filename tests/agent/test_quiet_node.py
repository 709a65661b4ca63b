"""A node on which nothing changes: what a period costs beside a hundred containers."""

import asyncio
import time

import pytest

from support.node_lab import in_lab

CONTAINERS, PERIODS, PERIOD = 100, 10, 0.2


async def quiet(lab, agent):
    """Wait until every container is confirmed and recorded; then count what ten periods cost, in seconds."""
    await lab.until(lambda: agent.status()["containers"] == {"confirmed": CONTAINERS})
    await lab.until(lambda: not agent.connections.runtime.unrecorded and not writes_waiting(agent))
    while lab.node.events and (lists := lab.node.calls["ListContainers"]):  # a stream begins with two lists
        await asyncio.sleep(1.5)
        if lab.node.calls["ListContainers"] == lists:
            break
    await next_period(lab, agent)
    lab.node.calls.clear()
    lab.node.updates.clear()
    lab.node.groups.written.clear()
    ledger, began = (lab.path / "state/ledger.json").stat().st_mtime_ns, time.monotonic()
    for _ in range(PERIODS):
        await next_period(lab, agent)
    assert lab.node.groups.written == []
    assert lab.node.updates == []
    assert (lab.path / "state/ledger.json").stat().st_mtime_ns == ledger
    return time.monotonic() - began


def writes_waiting(agent):
    return any(state.waiting for state in agent.publication.publisher.states())


async def next_period(lab, agent):
    at = agent.sources.reconciled_at
    await lab.until(lambda: agent.sources.reconciled_at > at)


@pytest.mark.parametrize("cpu", ["", "100m"], ids=["best-effort", "shared"])
@in_lab(seconds=240)
async def test_with_events_a_period_is_no_list_and_no_status_and_writes_nothing(lab, cpu):
    for number in range(CONTAINERS):
        lab.run(f"pod{number}", cpu)
    async with lab.working(reconcile_seconds=PERIOD) as agent:
        seconds = await quiet(lab, agent)
        assert set(lab.node.calls) <= {"Version"}, "asked only whether the runtime answers"
        assert lab.node.calls["Version"] <= seconds / PERIOD + 2


@in_lab(seconds=240, events=False, version="1.6.20")
async def test_without_events_a_period_is_one_list(lab):
    for number in range(CONTAINERS):
        lab.run(f"pod{number}")
    async with lab.working(reconcile_seconds=PERIOD) as agent:
        seconds = await quiet(lab, agent)
        assert set(lab.node.calls) <= {"ListContainers", "Version"}
        assert 1 <= lab.node.calls["ListContainers"] <= seconds / PERIOD + 2


@in_lab(seconds=240)
async def test_containers_that_are_on_their_cpus_are_adopted_without_an_update(lab):
    for number in range(20):
        lab.run(f"pod{number}")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 20})
        await asyncio.sleep(0.3)
        assert lab.node.updates == []
        assert agent.drifts.count == 0
