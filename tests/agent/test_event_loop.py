"""The loop of every agent: bounded events, and the ledger on disk before containers are changed."""

import asyncio
from contextlib import asynccontextmanager

from corelane.agent.allocation import events, instructions
from corelane.agent.allocation.events import AgentEvent, ContainerRun, PodSeen
from corelane.agent.allocation.instructions import Instruction
from corelane.agent.event_loop import EventLoop, EventQueue
from corelane.cpuset import CPUSet
from corelane.machine.spec import parse_spec
from corelane.node.config import NodeConfig
from corelane.node.ledger import NodeState, new
from corelane.runtime.base import ResourceUpdate
from support.agent_world import APP, plan

LEDGER = new(parse_spec("core:4 smt:1"), NodeConfig())
PIN = instructions.Pin("id", ResourceUpdate(cpus=CPUSet([1])))
EVENT = instructions.PublishEvent("", "Reason", "text")


def passed(at: float = 1.0) -> AgentEvent:
    return events.TimePassed(at=at, now=at)


def read(run: str, cpus: int) -> AgentEvent:
    return events.Observed(id=run, allowed=CPUSet([cpus]), at=1.0, now=1.0)


def seen(uid: str, milli: int = 2000) -> PodSeen:
    return PodSeen(pod=plan(uid, ("a", APP, milli)), at=1.0, now=1.0)


def drained(queue: EventQueue) -> list[AgentEvent]:
    return queue.take()


def test_a_newer_reading_replaces_a_waiting_one_and_moves_to_the_end() -> None:
    queue = EventQueue()
    for event in (read("x", 1), passed(1), read("y", 1), read("x", 2), passed(2)):
        queue.put(event)
    assert drained(queue) == [read("y", 1), read("x", 2), passed(2)]
    assert drained(queue) == []


def test_a_pod_takes_the_place_of_its_waiting_version_before_the_end_of_the_list() -> None:
    queue, listed = EventQueue(), events.PodsListed(at=1.0, now=1.0)
    for event in (seen("p"), seen("q"), listed, seen("p", 3000), events.PodGone(uid="q", at=1.0, now=1.0)):
        queue.put(event)
    assert drained(queue) == [seen("p", 3000), events.PodGone(uid="q", at=1.0, now=1.0), listed]


def test_answers_to_orders_are_all_kept_in_order() -> None:
    queue = EventQueue()
    answers = [events.PinFailed(id="x", message=str(number), at=1.0, now=1.0) for number in range(3)]
    for answer in answers:
        queue.put(answer)
    assert drained(queue) == answers


def test_the_queue_is_bounded_by_the_number_of_containers_however_long_nothing_is_taken() -> None:
    queue = EventQueue()
    for number in range(10_000):
        run = ContainerRun(id=f"run-{number % 7}", uid="p", container="a", attempt=number % 7, live=False)
        queue.put(events.Exited(run=run, at=float(number), now=1.0))
        queue.put(read(f"run-{number % 7}", number % 4))
        queue.put(passed(float(number)))
    assert len(queue) == 15


class Owner:
    """Answers every event with the same orders; `fault` makes writes fail."""

    def __init__(self, *orders: Instruction, fault: str = "") -> None:
        self.orders, self.fault = list(orders), fault
        self.log: list[object] = []
        self.disk = asyncio.Event()
        self.disk.set()

    async def observe(self) -> None:
        pass

    def decide(self, *batch: AgentEvent) -> list[Instruction]:
        self.log.extend(type(event).__name__ for event in batch)
        return list(self.orders)

    async def save(self, ledger: NodeState) -> str:
        await self.disk.wait()
        return self.fault

    def carry_out(self, order: Instruction) -> None:
        self.log.append(order)

    def waits_for_ledger(self, order: Instruction) -> bool:
        return isinstance(order, instructions.Pin)

    def saved(self, fault: str) -> None:
        self.log.append(f"saved: {fault}")

    async def batch_done(self) -> None:
        pass


@asynccontextmanager
async def looping(owner: Owner):
    queue = EventQueue()
    loop = EventLoop(queue)
    task = asyncio.create_task(loop.run(owner))
    try:
        yield queue, loop
    finally:
        task.cancel()


async def until(true) -> None:
    async with asyncio.timeout(120):
        while not true():
            await asyncio.sleep(0.01)


async def test_the_ledger_is_written_before_anything_is_carried_out() -> None:
    owner = Owner(instructions.SaveLedger(LEDGER), PIN, EVENT)
    async with looping(owner) as (queue, _):
        queue.put(passed())
        await until(lambda: EVENT in owner.log)
    assert owner.log == ["TimePassed", "saved: ", PIN, EVENT]


async def test_while_the_ledger_cannot_be_written_only_changes_of_containers_wait() -> None:
    owner = Owner(instructions.SaveLedger(LEDGER), PIN, EVENT, fault="disk full")
    async with looping(owner) as (queue, loop):
        queue.put(passed())
        await until(lambda: EVENT in owner.log)
        assert owner.log == ["TimePassed", "saved: disk full", EVENT]
        assert loop.held == 1
        owner.orders = [EVENT]
        queue.put(read("x", 1))
        await until(lambda: owner.log.count(EVENT) == 2)
        assert PIN not in owner.log
        owner.fault = ""
        await until(lambda: PIN in owner.log)
        assert loop.held == 0


async def test_a_write_of_the_ledger_that_hangs_holds_up_changes_of_containers_alone(monkeypatch) -> None:
    monkeypatch.setattr("corelane.agent.event_loop.SAVE_SECONDS", 0.05)
    monkeypatch.setattr("corelane.agent.event_loop.FIRST_RETRY", 0.05)
    owner = Owner(instructions.SaveLedger(LEDGER), PIN, EVENT)
    owner.disk.clear()
    async with looping(owner) as (queue, loop):
        queue.put(passed())
        await until(lambda: EVENT in owner.log)
        assert owner.log[:2] == [
            "TimePassed",
            "saved: a write has not ended after 0 s; check the disk of the state directory",
        ]
        owner.orders = [instructions.SaveLedger(new(parse_spec("core:2 smt:1"), NodeConfig())), EVENT]
        queue.put(read("x", 1))
        await until(lambda: owner.log.count(EVENT) == 2)
        assert (PIN in owner.log, loop.held) == (False, 1)
        owner.disk.set()
        await until(lambda: PIN in owner.log)
        assert owner.log[-2:] == ["saved: ", PIN]
