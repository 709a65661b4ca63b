"""What `corelane demo` prints: a short story, tables, CPU maps, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from corelane.cpuset import CPUSet
from corelane.machine.model import Machine
from corelane.view import status, tables, units
from corelane.view.status import Status

if TYPE_CHECKING:
    from rich.console import Console


@dataclass(frozen=True, slots=True)
class PoolStep:
    """The CPUs of a node at one moment of the story."""

    when: str
    shared: CPUSet
    best_effort: CPUSet
    exclusive: CPUSet

    def plain(self) -> dict[str, str]:
        return {
            "when": self.when,
            "shared": str(self.shared),
            "bestEffort": str(self.best_effort),
            "exclusive": str(self.exclusive),
        }


@dataclass(frozen=True, slots=True)
class Check:
    """What the kernel allows the tasks of one container, beside what they should be allowed."""

    container: str
    exclusive: bool
    wanted: CPUSet
    found: tuple[CPUSet, ...]
    """The different sets that its tasks have: one, if all is well."""
    tasks: int

    @property
    def ok(self) -> bool:
        return self.found == (self.wanted,)

    @property
    def verdict(self) -> str:
        sets = " and ".join(str(cpus) for cpus in self.found) or "nothing"
        return f"{'confirmed' if self.ok else 'DIFFERS'} {sets} ({units.plural(self.tasks, 'task')})"

    def plain(self) -> dict[str, Any]:
        return {
            "container": self.container,
            "exclusive": self.exclusive,
            "wanted": str(self.wanted),
            "allowed": [str(cpus) for cpus in self.found],
            "tasks": self.tasks,
            "ok": self.ok,
        }


class Audience(Protocol):
    """Who is told the story."""

    def say(self, text: str) -> None: ...
    def machine(self, machine: Machine, enforcement: str, notice: str, simulated: str) -> None: ...
    def applied(self, pod: str) -> None: ...
    def state(self, found: Status, checks: Sequence[Check]) -> None: ...
    def pool(self, steps: Sequence[PoolStep]) -> None: ...
    def cleaned(self, left: Sequence[str]) -> None: ...
    def verdict(self, checks: Sequence[Check], *, ok: bool) -> None: ...


class Silence:
    """Nobody: for scripts, which read JSON at the end."""

    def say(self, text: str) -> None: ...
    def machine(self, machine: Machine, enforcement: str, notice: str, simulated: str) -> None: ...
    def applied(self, pod: str) -> None: ...
    def state(self, found: Status, checks: Sequence[Check]) -> None: ...
    def pool(self, steps: Sequence[PoolStep]) -> None: ...
    def cleaned(self, left: Sequence[str]) -> None: ...
    def verdict(self, checks: Sequence[Check], *, ok: bool) -> None: ...


class Talk:
    """A person at a terminal, or reading a log."""

    def __init__(self, to: Console) -> None:
        self._to = to

    def say(self, text: str) -> None:
        self._to.print(text, markup=False)

    def machine(self, machine: Machine, enforcement: str, notice: str, simulated: str) -> None:
        self.say(f"This machine: {units.counts(machine)}; CPUs {machine.usable} are ours to use.")
        self.say(f"Containers run as local processes, held to their CPUs by {enforcement}.")
        if notice:
            self.say(f"Note: {notice}")
        self.say(f"Beside it, a simulated machine ({simulated}): no process runs there.\n")

    def applied(self, pod: str) -> None:
        self.say(f"applied pod/{pod}")

    def state(self, found: Status, checks: Sequence[Check]) -> None:
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
        headings = ("WHEN", "SHARED POOL", "BE POOL", "OWN")
        tables.show("How the pools of this machine moved", headings, rows, self._to)

    def cleaned(self, left: Sequence[str]) -> None:
        done = f"still running: {', '.join(left)}" if left else "processes, cgroups and files are removed"
        self.say(f"Cleaned up: {done}.")

    def verdict(self, checks: Sequence[Check], *, ok: bool) -> None:
        good = sum(check.ok for check in checks)
        judgement = "all is well." if ok else "NOT all is well."
        self.say(f"The kernel confirmed {good} of {len(checks)} pins: {judgement}")
