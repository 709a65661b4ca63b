"""A sample of containers' tasks each period: a cgroup's set does not show where its tasks may run.

A task that may leave its container's CPUs was moved to another cgroup: that is drift. One that may use only
part of them was narrowed by its program (sched_setaffinity, or a cgroup of its own), which is the program's
right: it is reported, and left alone. Reading every task of every container would cost too much: containers
take turns.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from corelane.agent.allocation.records import RunCPUs
from corelane.agent.execution import TASKS, outside
from corelane.agent.reporting import AgentReporter
from corelane.cpuset import CPUSet
from corelane.kernel.proc import TaskAffinity
from corelane.runtime.base import Runtime

CONTAINERS: Final = 2
"""Containers sampled in a period."""


@dataclass(frozen=True, slots=True)
class Narrowed:
    """A container some of whose sampled tasks may use only part of its CPUs; `used` by all of the sample."""

    container: str
    cpus: str
    used: str
    tasks: int
    sampled: int


def narrowed(container: str, tasks: list[TaskAffinity], cpus: CPUSet) -> Narrowed | None:
    """Return how far a program uses part of its container's CPUs; None where every task may use all."""
    count = sum(task.cpus < cpus for task in tasks)
    used = CPUSet(cpu for task in tasks for cpu in task.cpus) & cpus
    return Narrowed(container, str(cpus), str(used), count, len(tasks)) if count else None


class TaskSamples:
    """Samples of one agent. `name` returns the name of a run's pod."""

    def __init__(self, runtime: Runtime, reporter: AgentReporter, name: Callable[[str], str]) -> None:
        self._runtime = runtime
        self._reporter = reporter
        self._name = name
        self._last = ""
        self._narrowed: dict[str, Narrowed] = {}

    def due(self, runs: Iterable[RunCPUs]) -> set[str]:
        """Return the containers whose turn it is, and forget those that have ended."""
        ids = sorted(run.id for run in runs)
        for ended in self._narrowed.keys() - set(ids):
            del self._narrowed[ended]
        first = bisect_right(ids, self._last)
        chosen = (ids[first:] + ids[:first])[:CONTAINERS]
        self._last = chosen[-1] if chosen else ""
        return set(chosen)

    async def sample(self, run: RunCPUs, cpus: CPUSet) -> CPUSet:
        """Return the CPUs that a container's tasks may use beyond its own. Raises CgroupError."""
        tasks = await self._runtime.allowed(run.id, most=TASKS)
        self._note(run, narrowed(f"{self._name(run.uid)} {run.container}", tasks, cpus))
        return outside(tasks, cpus)

    def _note(self, run: RunCPUs, found: Narrowed | None) -> None:
        before = self._narrowed.pop(run.id, None)
        if found is None:
            return
        self._narrowed[run.id] = found
        if before is None or (before.cpus, before.used) != (found.cpus, found.used):
            self._reporter.narrowed(found.container, found.cpus, found.used)

    def plain(self) -> list[dict[str, Any]]:
        """Return the containers whose programs use part of their CPUs, for status."""
        return [asdict(found) for found in sorted(self._narrowed.values(), key=lambda one: one.container)]
