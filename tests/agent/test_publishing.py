"""Queues of writes to the API server."""

import asyncio
import threading

import msgspec
import pytest

from corelane.agent.publishing import Publisher, WriteQueue
from corelane.agent.reporting import AgentReporter
from corelane.kube.client import APIError, Unreachable
from corelane.kube.pod import Pod


class Recording:
    """A client that records created objects."""

    def __init__(self):
        self.created = []

    async def create(self, whole):
        self.created.append(whole)


class Work:
    """Writes that record their name after a number of failures."""

    def __init__(self):
        self.done, self.reported = [], []

    def job(self, name, *failures, gate=None):
        left = list(failures)

        async def run():
            if gate:
                await gate.wait()
            if left:
                raise left.pop(0)
            self.done.append(name)

        return run

    def report(self, what, error):
        self.reported.append((what, error.code))


def lane_test(body, **options):
    async def scenario():
        work = Work()
        lane = WriteQueue(work.report, **options)
        task = asyncio.create_task(lane.run())
        try:
            await body(lane, work)
        finally:
            task.cancel()
        return work

    return asyncio.run(scenario())


def test_writes_are_carried_out_in_the_order_of_their_keys():
    async def body(lane, work):
        for name in "abc":
            lane.put(name, work.job(name))
        await lane.idle()

    assert lane_test(body).done == ["a", "b", "c"]


def test_a_newer_write_replaces_a_waiting_one():
    async def body(lane, work):
        for name in ("status", "delete"):
            lane.put(name, work.job(f"old {name}"))
        lane.put("status", work.job("new status"))
        await lane.idle()

    assert lane_test(body).done == ["new status", "old delete"]


def test_a_write_put_during_an_earlier_one_follows_it():
    async def body(lane, work):
        gate = asyncio.Event()
        lane.put("status", work.job("old", gate=gate))
        await asyncio.sleep(0)
        lane.put("status", work.job("new"))
        gate.set()
        await lane.idle()

    assert lane_test(body).done == ["old", "new"]


@pytest.mark.parametrize(
    "error", [Unreachable("x"), APIError(500, "", "x"), APIError(429, "TooManyRequests", "x")]
)
def test_temporary_errors_are_retried_before_later_writes(error):
    async def body(lane, work):
        lane.put("status", work.job("status", error))
        lane.put("delete", work.job("delete"))
        await asyncio.wait_for(lane.idle(), 5)

    work = lane_test(body)
    assert work.done == ["status", "delete"]
    assert work.reported == [("status", error.code)]


@pytest.mark.parametrize("code", [404, 409, 422])
def test_obsolete_writes_are_dropped(code):
    async def body(lane, work):
        lane.put("status", work.job("status", APIError(code, "", "x")))
        lane.put("delete", work.job("delete"))
        await lane.idle()

    work = lane_test(body)
    assert work.done == ["delete"]
    assert work.reported == [("status", code)]


def test_a_full_queue_drops_new_writes():
    async def body(lane, work):
        for name in "abc":
            lane.put(name, work.job(name))
        await lane.idle()

    assert lane_test(body, limit=2).done == ["a", "b"]


def test_remedies_are_computed_in_a_thread_and_end_the_event():
    async def scenario():
        client, caller = Recording(), threading.get_ident()
        publisher = Publisher(client, "here", AgentReporter(), lambda: 0.0)
        task = asyncio.create_task(publisher.queues[-1].run())
        pod = msgspec.convert({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}}, Pod)
        threads = []

        def remedy():
            threads.append(threading.get_ident())
            return "1 CPUs would fit"

        publisher.event(pod, "InsufficientCPUs", "2 CPUs are asked for", warning=True, remedy=remedy)
        publisher.event(pod, "InsufficientCPUs", "nothing helps", warning=True, remedy=str)
        await publisher.idle()
        task.cancel()
        assert caller not in threads
        return [event["message"] for event in client.created]

    assert asyncio.run(scenario()) == [
        "2 CPUs are asked for; remedy: 1 CPUs would fit",
        "nothing helps",
    ]
