"""Tasks are sampled in turn: those beyond their container's CPUs are drift, narrowed ones are reported."""

import asyncio

from corelane.agent.allocation.records import RunCPUs
from corelane.agent.execution import TASKS
from corelane.agent.node_sources import TaskSamples
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.kernel.proc import TaskAffinity
from support.node_lab import in_lab

CPUS = CPUSet.parse("2-5")


def task(cpus, number=1):
    return TaskAffinity(1, number, CPUSet.parse(cpus))


class Runtime:
    def __init__(self, *tasks):
        self.tasks = list(tasks)

    async def allowed(self, container_id, *, most=None):
        assert most == TASKS
        return self.tasks


class Reporter(AgentReporter):
    def __init__(self):
        self.lines = []

    def narrowed(self, container, cpus, used):
        self.lines.append((container, cpus, used))


def runs(*ids):
    return [RunCPUs(f"uid-{name}", "app", name) for name in ids]


def samples(*tasks):
    reporter = Reporter()
    return TaskSamples(Runtime(*tasks), reporter), reporter


def sampled(found):
    return asyncio.run(found.sample(runs("a")[0], "uid-a", CPUS))


def test_containers_take_turns_also_when_some_come_and_go():
    found, _ = samples()
    assert [found.due(runs(*"abcde")) for _ in range(3)] == [{"a", "b"}, {"c", "d"}, {"a", "e"}]
    assert found.due(runs("b", "z")) == {"b", "z"}
    assert found.due(runs("q")) == {"q"}
    assert found.due([]) == set()


def test_a_task_beyond_its_containers_cpus_shows_which():
    found, reporter = samples(task("2-5"), task("0-3", 2))
    assert sampled(found) == CPUSet.parse("0-1")
    assert (found.plain(), reporter.lines) == ([], [])


def test_a_program_that_narrowed_itself_is_reported_once_and_left_alone():
    found, reporter = samples(task("2"), task("3", 2), task("2-5", 3))
    assert [sampled(found), sampled(found)] == [CPUSet(), CPUSet()]
    assert found.plain() == [
        {"container": "uid-a app", "cpus": "2-5", "used": "2-5", "tasks": 2, "sampled": 3}
    ]
    assert reporter.lines == [("uid-a app", "2-5", "2-5")]
    found._runtime.tasks = [task("2"), task("3", 2)]
    sampled(found)
    assert found.plain()[0]["used"] == "2-3"
    assert len(reporter.lines) == 2


def test_what_was_narrowed_is_forgotten_with_its_end_or_when_all_cpus_are_used_again():
    found, _ = samples(task("2"))
    sampled(found)
    found._runtime.tasks = [task("2-5")]
    sampled(found)
    assert found.plain() == []
    found._runtime.tasks = [task("2")]
    sampled(found)
    found.due(runs("b"))
    assert found.plain() == []


@in_lab()
async def test_a_task_that_was_moved_out_is_drift_and_the_container_is_pinned_again(lab, monkeypatch):
    server = lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        own = lab.cpus(server)

        async def allowed(container_id, *, most=None):
            return [TaskAffinity(7, 8, CPUSet(range(8)))]

        monkeypatch.setattr(agent.connections.runtime, "allowed", allowed)
        await lab.until(lambda: agent.drifts.count)  # what is seen while it is being pinned does not count
        monkeypatch.undo()
        assert agent.drifts.last == f"default/server/app on CPUs 0-7, allocated {own}"
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        assert lab.cpus(server) == own


@in_lab()
async def test_a_program_that_narrowed_itself_is_in_the_status(lab, monkeypatch):
    lab.run("server", "2")
    async with lab.working() as agent:
        await lab.until(lambda: agent.status()["containers"] == {"confirmed": 1})
        own = agent.ledger.entries["uid-server", "app"].cpus

        async def allowed(container_id, *, most=None):
            return [TaskAffinity(7, 7, CPUSet([min(own)]))]

        monkeypatch.setattr(agent.connections.runtime, "allowed", allowed)
        (shown,) = await lab.until(lambda: agent.status()["narrowed"])
        assert shown == {
            "container": "default/server app",
            "cpus": str(own),
            "used": str(min(own)),
            "tasks": 1,
            "sampled": 1,
        }
        assert agent.drifts.count == 0
