"""Queues of writes to the API server."""

import asyncio
import threading

import msgspec
import pytest

from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.write_queue import WriteQueue
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
        self.reported.append((what, getattr(error, "code", None)))


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


@pytest.mark.parametrize(
    "error", [APIError(401, "Unauthorized", "x"), APIError(403, "Forbidden", "x"), TypeError("x")]
)
def test_refused_and_unexpectedly_failing_writes_are_retried_and_delay_no_other_group(error):
    async def body(lane, work):
        lane.put("status", work.job("status", error, error), "pod a")
        lane.put("delete", work.job("delete"), "pod a")
        lane.put("other", work.job("other"), "pod b")
        await asyncio.wait_for(lane.idle(), 20)
        assert lane.state().failing_for == 0.0

    work = lane_test(body)
    assert work.done == ["other", "status", "delete"]


def test_the_state_names_what_fails_and_since_when():
    async def body(lane, work):
        lane.put("status", work.job("status", *[APIError(403, "Forbidden", "no permission")] * 99), "pod a")
        lane.put("other", work.job("other"), "pod b")
        while not work.done:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.05)
        state = lane.state()
        assert (state.name, state.waiting, state.written, state.dropped) == ("pods", 1, 1, 0)
        assert state.failing_for > 0.0
        assert "no permission" in state.last_error

    lane_test(body, name="pods")


def test_a_write_is_dropped_after_its_attempts():
    async def body(lane, work):
        lane.put("event", work.job("event", *[APIError(403, "Forbidden", "x")] * 9))
        await asyncio.wait_for(lane.idle(), 20)
        assert lane.state().dropped == 1

    assert lane_test(body, attempts=3).done == []


def test_trouble_with_the_server_uses_up_no_attempts():
    async def body(lane, work):
        lane.put("event", work.job("event", *[Unreachable("x")] * 4))
        await asyncio.wait_for(lane.idle(), 30)

    assert lane_test(body, attempts=2).done == ["event"]


def test_a_queue_that_keeps_its_writes_retries_whatever_the_answer():
    async def body(lane, work):
        lane.put("topology", work.job("topology", APIError(404, "NotFound", "no such kind")))
        await asyncio.wait_for(lane.idle(), 20)

    assert lane_test(body, keeps=True).done == ["topology"]


def test_a_newer_write_replaces_one_that_fails():
    async def body(lane, work):
        lane.put("status", work.job("old", *[TypeError("x")] * 99), "pod a")
        while not work.reported:
            await asyncio.sleep(0.01)
        lane.put("status", work.job("new"), "pod a")
        await asyncio.wait_for(lane.idle(), 20)

    assert lane_test(body).done == ["new"]


def test_a_full_queue_takes_newer_writes_of_waiting_keys():
    async def body(lane, work):
        lane.put("a", work.job("a"))
        lane.put("b", work.job("b"))
        lane.put("a", work.job("new a"))
        await lane.idle()
        assert lane.state().dropped == 1

    assert lane_test(body, limit=1).done == ["new a"]


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
