"""Queues of writes to the API server."""

import asyncio
import threading

import msgspec
import pytest

from corelane.agent.publication.publisher import Publisher
from corelane.agent.publication.write_queue import PublicationReporter, WriteQueue
from corelane.agent.reporting import AgentReporter
from corelane.embedded.pods.execution import StatusWriter
from corelane.embedded.pods.records import PublishStatus
from corelane.kube.client import APIError, Unreachable
from corelane.kube.pod import Pod
from corelane.machine.spec import parse_spec
from support.clocks import SetClocks
from support.virtual_time import VirtualLoop

MACHINE = parse_spec("core:8 smt:1")


class Recording:
    """A client that records created objects."""

    def __init__(self):
        self.created = []

    async def create(self, whole):
        self.created.append(whole)


class Work(PublicationReporter):
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

    def api_failed(self, what, error):
        self.reported.append((what, error.code))

    def malfunction(self, what, error):
        self.reported.append((what, None))


def lane_test(body, **options):
    """Play a scene in virtual time: pauses after failures take none."""

    async def scenario():
        work = Work()
        lane = WriteQueue(work, **options)
        task = asyncio.create_task(lane.run())
        try:
            await body(lane, work)
        finally:
            task.cancel()
        return work

    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario())


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


def test_an_outage_is_reported_once_however_many_writes_wait():
    async def body(lane, work):
        for name in "abc":
            lane.put(name, work.job(name, *[Unreachable("x")] * 2), name)
        await asyncio.wait_for(lane.idle(), 120)

    assert lane_test(body).reported == [("a", 0)]


def test_a_refusal_is_reported_once_for_each_object():
    async def body(lane, work):
        for name in "ab":
            lane.put(name, work.job(name, *[APIError(403, "Forbidden", "x")] * 3), name)
        await asyncio.wait_for(lane.idle(), 120)

    assert lane_test(body).reported == [("a", 403), ("b", 403)]


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
        await asyncio.wait_for(lane.idle(), 120)

    work = lane_test(body)
    assert work.done == ["status", "delete"]
    assert work.reported == [("status", error.code)]


@pytest.mark.parametrize("code", [404, 409, 422])
def test_obsolete_writes_are_dropped(code):
    async def body(lane, work):
        lane.put("status", work.job("status", APIError(code, "", "x")))
        lane.put("delete", work.job("delete"))
        await lane.idle()
        assert (lane.state().obsolete, lane.state().dropped) == (1, 0)

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
        await asyncio.wait_for(lane.idle(), 120)
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
        assert (state.name, state.waiting, state.written, state.obsolete) == ("pods", 1, 1, 0)
        assert state.failing_for > 0.0
        assert "no permission" in state.last_error

    lane_test(body, name="pods")


def test_a_write_is_dropped_after_its_attempts():
    async def body(lane, work):
        lane.put("event", work.job("event", *[APIError(403, "Forbidden", "x")] * 9))
        await asyncio.wait_for(lane.idle(), 120)
        assert lane.state().dropped == 1

    assert lane_test(body, attempts=3).done == []


def test_trouble_with_the_server_uses_up_no_attempts():
    async def body(lane, work):
        lane.put("event", work.job("event", *[Unreachable("x")] * 4))
        await asyncio.wait_for(lane.idle(), 120)

    assert lane_test(body, attempts=2).done == ["event"]


def test_a_queue_that_keeps_its_writes_retries_whatever_the_answer():
    async def body(lane, work):
        lane.put("topology", work.job("topology", APIError(404, "NotFound", "no such kind")))
        await asyncio.wait_for(lane.idle(), 120)

    assert lane_test(body, keeps=True).done == ["topology"]


def test_a_newer_write_replaces_one_that_fails():
    async def body(lane, work):
        lane.put("status", work.job("old", *[TypeError("x")] * 99), "pod a")
        while not work.reported:
            await asyncio.sleep(0.01)
        lane.put("status", work.job("new"), "pod a")
        await asyncio.wait_for(lane.idle(), 120)

    assert lane_test(body).done == ["new"]


def test_a_full_queue_takes_newer_writes_of_waiting_keys():
    async def body(lane, work):
        lane.put("a", work.job("a"))
        lane.put("a", work.job("new a"))
        await lane.idle()
        assert lane.state().dropped == 0

    assert lane_test(body, limit=1).done == ["new a"]


def test_a_full_queue_drops_its_oldest_group_and_none_that_is_under_way():
    async def body(lane, work):
        gate = asyncio.Event()
        lane.put("0", work.job("0", gate=gate), "0")
        await asyncio.sleep(0)
        for name in "abc":
            lane.put(name, work.job(name), name)
        assert lane.state().dropped == 1
        gate.set()
        await lane.idle()

    assert lane_test(body, limit=3).done == ["0", "b", "c"]


def test_writes_of_a_group_that_is_forgotten_are_not_carried_out():
    async def body(lane, work):
        gate = asyncio.Event()
        lane.put("under way", work.job("under way", gate=gate), "a")
        lane.put("waiting", work.job("waiting"), "a")
        lane.put("failing", work.job("failing", *[Unreachable("x")] * 99), "b")
        await asyncio.sleep(0)
        lane.forget("a")
        lane.forget("b")
        lane.put("again", work.job("again"), "a")
        lane.forget("nothing")
        assert lane.state().waiting == 1
        gate.set()
        await lane.idle()
        assert lane.state().waiting == 0

    assert lane_test(body).done == ["under way", "again"]


def test_a_group_that_keeps_its_writes_retries_whatever_the_answer():
    async def body(lane, work):
        lane.put("mirror", work.job("mirror", APIError(404, "NotFound", "no mirror")), "static", keeps=True)
        await asyncio.wait_for(lane.idle(), 120)

    assert lane_test(body).done == ["mirror"]


class Server:
    """A client of a server that is down at first; `written` has the last patch of every pod and part."""

    def __init__(self):
        self.up, self.calls, self.written = False, 0, {}

    async def patch(self, kind, name, body, **where):
        self.calls += 1
        if not self.up:
            raise Unreachable("connection refused")
        ((part, value),) = (pair for pair in body.items() if pair[0] != "metadata")
        self.written[name, part] = value

    async def create(self, whole):
        await self.patch(None, whole["message"], {"event": whole["message"]})


def pod_of(number):
    return msgspec.convert({"metadata": {"name": f"p{number}", "namespace": "n", "uid": f"u{number}"}}, Pod)


def test_after_a_long_outage_the_last_state_of_every_pod_is_written_and_nothing_of_pods_that_are_gone():
    async def scenario():
        server = Server()
        publisher = Publisher(server, "here", AgentReporter(), SetClocks())
        statuses = StatusWriter(server, publisher)
        tasks = [asyncio.create_task(queue.run()) for queue in publisher.queues]
        for number in range(30_000):  # more than ever were queued; most pods came and went
            pod = pod_of(number)
            for state in range(3):
                status = {"phase": f"state {state}"}
                statuses.carry_out(pod, PublishStatus(pod.metadata.uid, status))
            if number >= 500:
                statuses.forget(pod.metadata.uid)
                publisher.forget(pod.metadata.uid)
            if number < 3000:
                publisher.event(pod, "Reason", f"event {number}", warning=False)
        while server.calls < 5:
            await asyncio.sleep(0.01)
        pods, _, events = publisher.states()
        assert (pods.waiting, pods.dropped, events.waiting, events.dropped) == (500, 0, 1000, 2000)
        assert pods.failing_for > 0.0
        server.up = True
        await asyncio.wait_for(publisher.idle(), 180)
        for task in tasks:
            task.cancel()
        return server.written

    written = asyncio.run(scenario())
    statuses = {name: value for (name, part), value in written.items() if part == "status"}
    assert statuses == {f"p{number}": {"phase": "state 2"} for number in range(500)}
    kept = {value for (_, part), value in written.items() if part == "event"}
    # One that was under way when the queue was full stays.
    assert len(kept & {f"event {number}" for number in range(2000, 3000)}) >= 999


def test_remedies_are_computed_in_a_thread_and_end_the_event():
    async def scenario():
        client, caller = Recording(), threading.get_ident()
        publisher = Publisher(client, "here", AgentReporter(), SetClocks())
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
