"""Writes that wait for the next one: the last one is put, once, soon, and none after its owner is gone."""

import asyncio
from types import SimpleNamespace

import msgspec

from corelane.agent.publication.publisher import Publisher
from corelane.embedded.pods.execution import HeldWrites, StatusWriter
from corelane.embedded.pods.records import DeletePod, PublishStatus
from corelane.kube.pod import Pod
from support.clocks import SetClocks
from support.virtual_time import run


def test_what_is_held_is_put_once_in_its_time_with_the_last_write():
    async def scenario():
        held, put = HeldWrites(0.05), []
        for number in range(3):
            held.hold("a", lambda number=number: put.append(number))
            await asyncio.sleep(0.01)
        assert put == []
        await asyncio.sleep(0.1)
        assert put == [2]
        held.release("a")
        held.drop("a")
        assert put == [2]

    run(scenario())


def test_what_is_held_is_put_at_once_when_released_and_never_when_dropped():
    async def scenario():
        held, put = HeldWrites(0.02), []
        for name in "abc":
            held.hold(name, lambda name=name: put.append(name))
        held.release("b")
        held.drop("a")
        assert put == ["b"]
        held.release_all()
        assert put == ["b", "c"]
        await asyncio.sleep(0.05)
        assert put == ["b", "c"]

    run(scenario())


class Server:
    """Takes statuses and deletions."""

    def __init__(self, seen):
        self.seen = seen

    async def patch(self, kind, name, body, **_):
        self.seen.append(body["status"]["phase"])

    async def delete(self, kind, name, **_):
        self.seen.append("deleted")


def written(*phases, forget=False, waiting="ContainerCreating"):
    """Return what reaches the server: statuses of these phases in turn; "" waits a moment, "-" deletes."""
    seen = []
    containers = [{"name": "c", "state": {"waiting": {"reason": waiting}}}]

    async def scenario():
        server, reporter = Server(seen), SimpleNamespace(api_failed=print, malfunction=print)
        publisher = Publisher(server, "n", reporter, SetClocks())
        statuses = StatusWriter(server, publisher)
        pod = msgspec.convert({"metadata": {"name": "p", "namespace": "d", "uid": "u"}}, Pod)
        tasks = [asyncio.create_task(queue.run()) for queue in publisher.queues]
        for phase in phases:
            if not phase:
                await asyncio.sleep(1.2)
            elif phase == "-":
                statuses.carry_out(pod, DeletePod("u"))
            else:
                status = {"phase": phase, "containerStatuses": containers}
                statuses.carry_out(pod, PublishStatus("u", status))
                await asyncio.sleep(0.01)
        if forget:
            statuses.forget("u")
            publisher.forget("u")
        statuses.flush()
        await publisher.idle()
        for task in tasks:
            task.cancel()

    run(scenario())
    return seen


def test_a_pod_that_runs_soon_has_one_status_written():
    assert written("Pending", "Running") == ["Running"]
    assert written("Pending", "Pending", "Failed") == ["Failed"]


def test_a_pod_that_stays_pending_has_that_written():
    assert written("Pending", "") == ["Pending"]
    assert written("Pending") == ["Pending"]
    assert written("Pending", "", "Running") == ["Pending", "Running"]


def test_a_container_that_cannot_start_is_reported_at_once():
    assert written("Pending", "Running", waiting="CreateContainerConfigError") == ["Pending", "Running"]


def test_a_pending_status_precedes_the_deletion_and_is_not_written_for_a_pod_that_is_gone():
    assert written("Pending", "-") == ["Pending", "deleted"]
    assert written("Pending", forget=True) == []
