"""Output of `corelane demo`: each step, tables, CPU maps, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.node.explain.cluster_status import ClusterStatus
from corelane.node.explain.json_values import json_value
from corelane.view import cpumap, status, tables

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class PoolStep:
    """The CPUs of a node after one step."""

    when: str
    shared: CPUSet
    best_effort: CPUSet
    exclusive: CPUSet


@dataclass(frozen=True, slots=True)
class Check:
    """The CPUs that the kernel allows the tasks of one container, beside those of the ledger."""

    container: str
    exclusive: bool
    wanted: CPUSet
    found: tuple[CPUSet, ...]
    """The different sets that its tasks have: one, if all agree."""
    tasks: int

    @property
    def ok(self) -> bool:
        return self.found == (self.wanted,)

    @property
    def verdict(self) -> str:
        tasks = cpumap.plural(self.tasks, "task")
        if self.ok:
            return f"confirmed ({tasks})"
        return f"DIFFERS: {' and '.join(str(cpus) for cpus in self.found) or 'no task'} ({tasks})"

    def plain(self) -> dict[str, Any]:
        return {**json_value(self, {"found": "allowed"}), "ok": self.ok}


class DemoReport:
    """Text for a terminal or a log."""

    def __init__(self, to: Console) -> None:
        self._to = to

    def say(self, text: str) -> None:
        self._to.print(text, markup=False)

    def machine(self, machine: Machine, enforcement: str, notice: str, simulated: str) -> None:
        self.say(f"This machine: {cpumap.counts(machine)}; CPUs {machine.usable} are allocatable.")
        self.say(f"Containers run as local processes, confined to their CPUs by {enforcement}.")
        if notice:
            self.say(f"Note: {notice}")
        self.say(f"A second node, sim-1, is simulated ({simulated}): no process runs there.\n")

    def applied(self, pod: str) -> None:
        self.say(f"pod/{pod} created")

    def state(self, found: ClusterStatus, checks: Sequence[Check]) -> None:
        self.say("")
        status.show_nodes(found, self._to)
        status.show_maps(found, self._to)
        kernel = {check.container: check.verdict for check in checks}
        status.show_containers(found.containers, self._to, kernel)
        status.show_pending(found.pending, self._to)

    def pool(self, steps: Sequence[PoolStep]) -> None:
        rows = [
            (step.when, str(step.shared), str(step.best_effort), str(step.exclusive) or "-") for step in steps
        ]
        headings = ("AFTER", "SHARED POOL", "BE POOL", "EXCLUSIVE")
        tables.show("Pools of this machine after each step", headings, rows, self._to)

    def cleaned(self, left: Sequence[str]) -> None:
        done = f"still running: {', '.join(left)}" if left else "processes, cgroups and files removed"
        self.say(f"Cleanup: {done}.")

    def verdict(self, checks: Sequence[Check], *, ok: bool) -> None:
        good = sum(check.ok for check in checks)
        containers = cpumap.plural(len({check.container for check in checks}), "container")
        verdict = "passed" if ok else "FAILED"
        self.say(
            f"Demo {verdict}: allowed CPUs read from /proc for {containers}, before and after "
            f"latency-critical is deleted: {good} of {len(checks)} reads as expected."
        )
