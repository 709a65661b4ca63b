"""Lanes of writes to the API server."""

import asyncio
import threading

import msgspec
import pytest

from corelane.agent.publishing import Publisher, WriteQueue
from corelane.agent.reporting import AgentReporter
from corelane.kube.client import APIError, Unreachable
from corelane.kube.pod import Pod


class Recording:
    """A client that only takes down what is to be created."""

    def __init__(self):
        self.created = []

    async def create(self, whole):
        self.created.append(whole)


class Work:
    """Jobs that write their name, after failing as often as they are told."""

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


def test_jobs_are_done_in_the_order_in_which_their_keys_came():
    async def body(lane, work):
        for name in "abc":
            lane.put(name, work.job(name))
        await lane.idle()

    assert lane_test(body).done == ["a", "b", "c"]


def test_a_newer_job_takes_the_place_of_one_that_waits():
    async def body(lane, work):
        for name in ("status", "delete"):
            lane.put(name, work.job(f"old {name}"))
        lane.put("status", work.job("new status"))
        await lane.idle()

    assert lane_test(body).done == ["new status", "old delete"]


def test_a_job_put_while_its_elder_is_under_way_is_done_after_it():
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
def test_what_may_pass_is_tried_again_and_holds_up_the_rest(error):
    async def body(lane, work):
        lane.put("status", work.job("status", error))
        lane.put("delete", work.job("delete"))
        await asyncio.wait_for(lane.idle(), 5)

    work = lane_test(body)
    assert work.done == ["status", "delete"]
    assert work.reported == [("status", error.code)]


@pytest.mark.parametrize("code", [404, 409, 422])
def test_what_makes_no_sense_any_more_is_dropped(code):
    async def body(lane, work):
        lane.put("status", work.job("status", APIError(code, "", "x")))
        lane.put("delete", work.job("delete"))
        await lane.idle()

    work = lane_test(body)
    assert work.done == ["delete"]
    assert work.reported == [("status", code)]


def test_a_full_lane_takes_no_more():
    async def body(lane, work):
        for name in "abc":
            lane.put(name, work.job(name))
        await lane.idle()

    assert lane_test(body, limit=2).done == ["a", "b"]


def test_what_takes_long_to_say_is_found_out_beside_the_loop_and_ends_the_event():
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
