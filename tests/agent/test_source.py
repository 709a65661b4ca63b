"""Sources of an agent: each fails, pauses and recovers on its own."""

import asyncio

from corelane.agent import source
from corelane.agent.reporting import AgentReporter
from corelane.agent.source import Source
from support.clocks import SetClocks


class Recorder(AgentReporter):
    def __init__(self) -> None:
        self.lines: list[str] = []

    def source_failed(self, name: str, error: BaseException) -> None:
        self.lines.append(f"{name} failed: {error}")

    def source_recovered(self, name: str, retries: int) -> None:
        self.lines.append(f"{name} recovered after {retries}")


def made(reporter: AgentReporter, seconds: float = 0.01) -> Source:
    return Source("kubelet pods", seconds=seconds, reporter=reporter, clocks=SetClocks(7.0))


async def until(true) -> None:
    async with asyncio.timeout(120):
        while not true():
            await asyncio.sleep(0.01)


async def test_a_source_that_fails_is_retried_reported_once_and_recovers(monkeypatch) -> None:
    monkeypatch.setattr(source, "FIRST_PAUSE", 0.001)
    reporter, fault = Recorder(), [RuntimeError("no answer")]

    async def read() -> None:
        if fault:
            raise fault[0]

    reading = made(reporter)
    assert reading.state.state == "starting"
    task = asyncio.create_task(reading.run(read))
    await until(lambda: reading.state.retries >= 3)
    assert (reading.state.state, reading.state.error, reading.state.since) == (
        "failing",
        "no answer",
        7.0,
    )
    fault.clear()
    await until(lambda: reading.state.state == "ok")
    assert (reading.state.error, reading.state.retries) == ("", 0)
    assert reading.state.failures >= 3
    task.cancel()
    assert reporter.lines[0] == "kubelet pods failed: no answer"
    assert len(reporter.lines) == 2
    assert reporter.lines[1].startswith("kubelet pods recovered after ")


async def test_pauses_grow_to_a_limit() -> None:
    reading = made(AgentReporter())
    longest = []
    for _ in range(20):
        reading.note_failure(RuntimeError("x"))
        longest.append(max(reading._pause() for _ in range(50)))
    assert longest[0] <= source.FIRST_PAUSE
    assert source.LONGEST_PAUSE / 2 <= longest[-1] <= source.LONGEST_PAUSE


async def test_wake_makes_the_next_reading_come_at_once() -> None:
    readings = []

    async def read() -> None:
        readings.append(1)

    reading = made(AgentReporter(), seconds=3600)
    task = asyncio.create_task(reading.run(read))
    await until(lambda: len(readings) == 1 and reading.state.state == "ok")
    reading.wake()
    await until(lambda: len(readings) == 2)
    task.cancel()


async def test_one_source_that_raises_anything_stops_no_other() -> None:
    good = []

    async def broken() -> None:
        raise MemoryError

    async def working() -> None:
        good.append(1)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(made(AgentReporter()).run(read)) for read in (broken, working)]
        await until(lambda: len(good) > 5)
        for task in tasks:
            task.cancel()
