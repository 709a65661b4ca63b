"""The NRI plugin as a service, against a socket whose runtime does what a test says."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from corelane.cpuset import CPUSet
from corelane.runtime.base import ResourceUpdate
from corelane.runtime.nri.acting_lock import socket_lock, state_lock
from corelane.runtime.nri.connection import NRIConnection, Reporter
from corelane.runtime.nri.values import (
    Answer,
    Configured,
    ContainerCreating,
    ContainerUpdating,
    Lost,
    Notification,
    RuntimeIdentity,
    Synchronized,
    Unanswered,
)
from support import nri_wire
from support.fake_nri import CONTAINERD_1_7, FakeNRI, PluginAtRuntime, listening
from support.protobuf import decode

PINNED = ResourceUpdate(cpus=CPUSet.parse("4-5"))
SHRUNK = ResourceUpdate(cpus=CPUSet.parse("0-3"))


class Agent(Reporter):
    """Handlers that answer at once unless a test replaces them, and a record of everything."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.reports: list[tuple] = []
        self.creating: Callable[[ContainerCreating], Awaitable[Answer]] = self._pin

    async def _pin(self, _: ContainerCreating) -> Answer:
        return Answer(PINNED, (("old", SHRUNK),))

    async def on_synchronized(self, event: Synchronized) -> tuple:
        self.events.append(event)
        return tuple((container.id, SHRUNK) for container in event.containers)

    async def on_creating(self, event: ContainerCreating) -> Answer:
        self.events.append(event)
        return await self.creating(event)

    async def on_updating(self, event: ContainerUpdating) -> tuple:
        self.events.append(event)
        return ((event.container.id, SHRUNK),)

    def on_event(self, event: Any) -> None:
        self.events.append(event)

    def waiting(self, holder: str) -> None:
        self.reports.append(("waiting", holder))

    def connected(self, runtime: RuntimeIdentity) -> None:
        self.reports.append(("connected", runtime.name))

    def lost(self, reason: str) -> None:
        self.reports.append(("lost", reason))

    def handled(self, question: Any, seconds: float, outcome: str) -> None:
        self.reports.append(("handled", type(question).__name__, outcome, seconds))

    def failed(self, handler: str, error: Exception) -> None:
        self.reports.append(("failed", handler, str(error)))

    def outcomes(self, kind: str = "ContainerCreating") -> list[str]:
        return [report[2] for report in self.reports if report[:2] == ("handled", kind)]


@asynccontextmanager
async def serving(tmp_path: Path, agent: Agent, **options: Any) -> Any:
    connection = NRIConnection(
        agent, state_directory=tmp_path, socket=tmp_path / "nri.sock", reporter=agent, **options
    )
    task = asyncio.create_task(connection.run())
    try:
        yield connection
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert connection.status.state == "stopped"
        if not task.cancelled():
            await task


async def until(condition: Callable[[], Any], seconds: float = 120) -> None:
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.01)


def run(scene: Callable[..., Awaitable[None]], tmp_path: Path) -> None:
    async def play() -> None:
        with listening(tmp_path / "nri.sock") as fake:
            await scene(tmp_path, Agent(), fake)

    asyncio.run(play())


async def joined(fake: FakeNRI, **options: Any) -> PluginAtRuntime:
    """The plugin, registered and synchronized."""
    runtime = await asyncio.to_thread(fake.accept)
    await asyncio.to_thread(lambda: runtime.ready(**options))
    return runtime


def adjusted(answer: dict) -> dict:
    return nri_wire.resources(answer[1][0])


def test_the_plugin_registers_synchronizes_and_adjusts_containers(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        async with serving(home, agent) as connection:
            runtime = await asyncio.to_thread(fake.accept)
            answer = await asyncio.to_thread(
                runtime.ready, [nri_wire.pod("u0")], [nri_wire.container("old", "u0", state=3)]
            )
            assert runtime.name == b"90-corelane"
            assert [nri_wire.resources(update) for update in answer[1]] == [{"cpus": "0-3"}]
            answer = await asyncio.to_thread(runtime.create, "new")
            assert adjusted(answer) == {"cpus": "4-5"}
            assert [decode(update)[1] for update in answer[2]] == [[b"old"]]
            body = {1: nri_wire.pod("u0"), 2: nri_wire.container("old", "u0"), 3: {2: {6: "0-7"}}}
            answer = await asyncio.to_thread(runtime.call, "UpdateContainer", body)
            assert [nri_wire.resources(update) for update in answer[1]] == [{"cpus": "0-3"}]
            await asyncio.to_thread(runtime.call, "StateChange", {1: 7, 2: nri_wire.pod("u0")})
            await until(lambda: isinstance(agent.events[-1], Notification))
            kinds = [type(event) for event in agent.events]
            assert kinds == [Configured, Synchronized, ContainerCreating, ContainerUpdating, Notification]
            status = connection.status
            assert (status.state, status.runtime.version) == ("synchronized", "1.7.24")
            assert status.synchronizations == 1
            assert status.outcomes == {"answered": 3}
            assert 0 < status.slowest_seconds < 20
            assert agent.reports[0] == ("connected", "containerd")
            assert agent.outcomes() == ["answered"]

    run(scene, tmp_path)


def test_a_handler_that_is_too_slow_is_answered_for_and_reported(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        release, finished = asyncio.Event(), asyncio.Event()

        async def slow(_: ContainerCreating) -> Answer:
            await release.wait()
            finished.set()
            return Answer(PINNED)

        async with serving(home, agent, budget=0.2) as connection:
            runtime = await joined(fake)
            agent.creating = slow
            assert await asyncio.to_thread(runtime.create, "new") == {}
            await until(agent.outcomes)
            assert agent.outcomes() == ["overrun"]
            [late] = [event for event in agent.events if isinstance(event, Unanswered)]
            assert (late.outcome, late.question.container.id) == ("overrun", "new")
            assert late.seconds >= 0.2
            release.set()
            await asyncio.wait_for(finished.wait(), 120)
            agent.creating = agent._pin
            assert adjusted(await asyncio.to_thread(runtime.create, "next")) == {"cpus": "4-5"}
            await until(lambda: connection.status.outcomes.get("answered") == 2)
            assert connection.status.outcomes["overrun"] == 1

    run(scene, tmp_path)


def test_the_runtime_gets_its_answer_while_the_loop_of_the_agent_is_blocked(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        answered = threading.Event()

        async def blocking(_: ContainerCreating) -> Answer:
            assert answered.wait(60)  # an fsync on a slow disk, say
            return Answer(PINNED)

        def create() -> dict:
            answer = runtime.create("new")
            answered.set()
            return answer

        async with serving(home, agent):
            runtime = await joined(fake)
            agent.creating = blocking
            assert await asyncio.to_thread(create) == {}
            await until(agent.outcomes)
            assert agent.outcomes() == ["overrun"]

    run(scene, tmp_path)


def test_the_budget_is_at_most_half_of_what_the_runtime_waits(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        async def never(_: ContainerCreating) -> Answer:
            await asyncio.Event().wait()

        async with serving(home, agent, budget=60):
            runtime = await joined(fake, configure={**CONTAINERD_1_7, 5: 400})
            agent.creating = never
            answer, seconds = await asyncio.to_thread(runtime.timed_create, "new")
            assert answer == {}
            assert 0.2 <= seconds < 20

    run(scene, tmp_path)


@pytest.mark.parametrize("wrong", [KeyError("x"), TimeoutError("not ours")])
def test_a_handler_that_raises_is_answered_for_and_reported(tmp_path: Path, wrong: Exception) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        async def broken(_: ContainerCreating) -> Answer:
            raise wrong

        async with serving(home, agent):
            runtime = await joined(fake)
            agent.creating = broken
            assert await asyncio.to_thread(runtime.create, "new") == {}
            await until(agent.outcomes)
            assert agent.outcomes() == ["failed"]
            assert ("failed", "ContainerCreating", str(wrong)) in agent.reports
            assert [e.outcome for e in agent.events if isinstance(e, Unanswered)] == ["failed"]

    run(scene, tmp_path)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(ResourceUpdate(cpus=CPUSet())),
        Answer(ResourceUpdate(quota_us=1 << 70)),
        Answer(updates=((5, PINNED),)),
        "x",
    ],
    ids=["empty set", "quota too large", "number for an id", "text"],
)
def test_an_answer_that_cannot_be_expressed_is_a_failure(tmp_path: Path, answer: Any) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        async def wrong(_: ContainerCreating) -> Answer:
            return answer

        async with serving(home, agent):
            runtime = await joined(fake)
            agent.creating = wrong
            assert await asyncio.to_thread(runtime.create, "new") == {}
            await until(agent.outcomes)
            assert agent.outcomes() == ["failed"]

    run(scene, tmp_path)


def test_a_listener_that_raises_is_reported_and_the_next_event_arrives(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        class Failing(Agent):
            def on_event(self, event: Any) -> None:
                if getattr(event, "kind", "") == "ContainerStarted":
                    raise KeyError("started")
                super().on_event(event)

        agent = Failing()
        async with serving(home, agent):
            runtime = await joined(fake)
            for number in (7, 10):
                body = {1: number, 2: nri_wire.pod("u"), 3: nri_wire.container("c", "u")}
                await asyncio.to_thread(runtime.call, "StateChange", body)
            await until(lambda: ("failed", "on_event", "'started'") in agent.reports)
            await until(lambda: agent.events[-1].kind == "ContainerStopped")

    run(scene, tmp_path)


def test_the_plugin_comes_back_after_a_restart_of_the_runtime_and_synchronizes(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        async with serving(home, agent) as connection:
            await joined(fake)
            fake.close()
            await until(lambda: connection.status.state == "connecting")
            await until(lambda: any("is the container runtime running" in str(r) for r in agent.reports))
            with listening(home / "nri.sock") as again:
                runtime = await joined(again)
                assert adjusted(await asyncio.to_thread(runtime.create, "new")) == {"cpus": "4-5"}
                assert connection.status.synchronizations == 2
            assert len([event for event in agent.events if isinstance(event, Lost)]) >= 1

    run(scene, tmp_path)


def test_a_question_is_void_when_the_runtime_ends_before_its_answer(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        asked = asyncio.Event()

        async def never(_: ContainerCreating) -> Answer:
            asked.set()
            await asyncio.Event().wait()

        async with serving(home, agent, budget=60):
            runtime = await joined(fake, configure={**CONTAINERD_1_7, 5: 200_000})
            agent.creating = never
            body = {1: nri_wire.pod("u"), 2: nri_wire.container("c", "u")}
            await asyncio.to_thread(runtime.send, "CreateContainer", body)
            await asyncio.wait_for(asked.wait(), 120)
            runtime.close()
            await until(agent.outcomes)
            assert agent.outcomes() == ["lost"]

    run(scene, tmp_path)


def test_garbage_closes_the_connection_and_the_plugin_connects_again(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        async with serving(home, agent):
            runtime = await joined(fake)
            await asyncio.to_thread(runtime.connection.sendall, b"\xff" * 64)
            assert await asyncio.to_thread(runtime.is_closed)
            runtime = await joined(fake)
            assert adjusted(await asyncio.to_thread(runtime.create, "new")) == {"cpus": "4-5"}
            assert any("frame of 4294967295 bytes" in report[1] for report in agent.reports)

    run(scene, tmp_path)


def test_a_refused_registration_is_reported_with_the_message_of_the_runtime(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        async with serving(home, agent) as connection:
            runtime = await asyncio.to_thread(fake.accept)
            _, stream, _, _ = await asyncio.to_thread(runtime.expect, nri_wire.RUNTIME)
            runtime.connection.sendall(nri_wire.response(stream, {}, 2, "invalid plugin index"))
            await until(lambda: "invalid plugin index" in connection.status.detail)
            assert connection.status.detail.startswith(f"{home}/nri.sock: RegisterPlugin: status 2")

    run(scene, tmp_path)


def test_a_second_copy_waits_says_so_and_takes_over(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        second = Agent()
        async with serving(home, agent):
            await joined(fake)
            async with serving(home, second) as waiting:
                await until(lambda: second.reports)
                [(kind, holder)] = second.reports
                assert kind == "waiting"
                assert "agent.lock is locked by process" in holder
                assert (waiting.status.state, waiting.status.detail) == ("waiting", holder)
                with pytest.raises(TimeoutError):
                    await asyncio.to_thread(fake.accept, 1.0)
                assert not second.events
        async with serving(home, second):
            runtime = await joined(fake)
            assert adjusted(await asyncio.to_thread(runtime.create, "new")) == {"cpus": "4-5"}

    run(scene, tmp_path)


@pytest.mark.parametrize("beside", ["state", "socket"])
def test_a_copy_that_waits_connects_when_the_lock_is_released(tmp_path: Path, beside: str) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        other = state_lock(home) if beside == "state" else socket_lock(fake.path)
        assert other.try_acquire() == ""
        async with serving(home, agent) as connection:
            await until(lambda: connection.status.state == "waiting")
            assert str(other.path) in connection.status.detail
            other.release()
            await joined(fake)
            await until(lambda: connection.status.state == "synchronized")

    run(scene, tmp_path)


def test_a_lock_that_the_agent_holds_is_used_and_kept(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        own = state_lock(home)
        assert own.try_acquire() == ""
        async with serving(home, agent, lock=own):
            await joined(fake)
        assert own.held
        own.release()

    run(scene, tmp_path)


async def test_without_the_directory_of_the_socket_the_plugin_goes_on_trying_to_connect(
    tmp_path: Path,
) -> None:
    agent, socket = Agent(), tmp_path / "nri/nri.sock"
    connection = NRIConnection(agent, state_directory=tmp_path, socket=socket, reporter=agent)
    task = asyncio.create_task(connection.run())
    await until(lambda: connection.status.detail)
    assert connection.status.state == "connecting"
    assert connection.status.detail.endswith("is the container runtime running, with NRI enabled?")
    socket.parent.mkdir()
    with listening(socket) as fake:
        await joined(fake)
        task.cancel()
        await asyncio.wait([task])


def test_a_lock_that_cannot_be_had_keeps_the_plugin_away_from_the_runtime(tmp_path: Path) -> None:
    async def scene(home: Path, agent: Agent, fake: FakeNRI) -> None:
        connection = NRIConnection(
            agent, state_directory=home / "no", socket=home / "nri.sock", reporter=agent
        )
        task = asyncio.create_task(connection.run())
        await until(lambda: connection.status.state == "waiting")
        assert "agent.lock: No such file or directory: a writable dir" in connection.status.detail
        task.cancel()
        await asyncio.wait([task])

    run(scene, tmp_path)
